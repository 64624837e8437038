# SPDX-License-Identifier: Apache-2.0
"""Runs libFuzzer on targets in C: several side by side, each from its corpus of inputs.

They run at a low priority (nice) for a number of seconds by the clock, so that tests which only wait for
Slurm or a registry are not held up.

Inputs that earlier runs found are kept in the repository, one a line: fuzz/known/TARGET.base64, beside the
seeds that people wrote. A short run starts from there. CELLBLOCK_FUZZ_KEEP=1 has a run add what it found,
and drop inputs that reach nothing new: with CELLBLOCK_FUZZ_SECONDS=600 CELLBLOCK_FUZZ_SEED=0, say.

Each run begins with the same random seed (CELLBLOCK_FUZZ_SEED, 1), so that a finding comes from the change
under test and not from chance; 0 takes another seed each time, for long runs.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests.c_compiling import build_folder, make

# A tenth of what another process gets that wants the same core (sched(7), the weights of nice values).
_NICE = ("nice", "-n", "10")
# What one input may take: a hundred times what the slowest known one does, on a machine that is busy.
_INPUT_S = 20
_MEMORY_MB = 1024
# Bytes of a target's known inputs that are kept, the shortest first: each run begins with them.
_KEPT_MOST = 100_000
SECONDS = int(os.environ.get("CELLBLOCK_FUZZ_SECONDS", "4"))
"""For each target: it runs all known inputs in the first, and looks for others in the rest."""
_SEED = os.environ.get("CELLBLOCK_FUZZ_SEED", "1")


def fuzz(
    sources: Path,
    targets: Iterable[str],
    folder: Path,
    *,
    max_len: int | Mapping[str, int],
    dictionaries: bool = False,
    prefixes: Mapping[str, Sequence[str]] | None = None,
    corpora: Mapping[str, Path] | None = None,
) -> None:
    """Compile the targets by the Makefile in `sources` or above it, and run each for SECONDS.

    `max_len`: bytes of an input at most, of all or by target (512 for those not named). `dictionaries`: each
    target has one in `sources`. `prefixes`: commands to start a target by. `corpora`: of targets
    that begin with another's. What is found lies in `folder`.
    """
    if not shutil.which("clang"):
        pytest.skip("clang is not installed: `python3 build.py test` installs it")
    makefile = sources if (sources / "Makefile").exists() else sources.parent
    build = build_folder(makefile)
    done = make(makefile, build, *(f"{build}/fuzz_{name}" for name in targets))
    assert done.returncode == 0, done.stdout + done.stderr
    running: list[tuple[str, subprocess.Popen[bytes]]] = []
    try:
        for name in targets:
            found = folder / f"found-{name}"
            found.mkdir()
            length = max_len if isinstance(max_len, int) else max_len.get(name, 512)
            command = [
                *_NICE,
                *(prefixes or {}).get(name, ()),
                str(build / f"fuzz_{name}"),
                f"-max_total_time={SECONDS}",
                f"-max_len={length}",
                f"-seed={_SEED}",
                f"-timeout={_INPUT_S}",
                f"-rss_limit_mb={_MEMORY_MB}",
                "-print_final_stats=1",
                f"-artifact_prefix={folder}/{name}-",
                *([f"-dict={sources}/fuzz/{name}.dict"] if dictionaries else []),
                str(found),
                str(_unpacked(sources, name, folder)),
                str((corpora or {}).get(name, sources / "fuzz/corpus" / name)),
            ]
            with (folder / f"{name}.log").open("wb") as log:
                running.append((name, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
        complaints = [
            complaint
            for name, process in running
            if (complaint := _complaint(sources, name, folder, process.wait(SECONDS + 120)))
        ]
    finally:
        for _, process in running:
            process.kill()
            process.wait()
    assert not complaints, "\n\n".join(complaints)
    if os.environ.get("CELLBLOCK_FUZZ_KEEP"):
        for name in targets:
            _keep(
                sources, name, folder, [*_NICE, *(prefixes or {}).get(name, ()), str(build / f"fuzz_{name}")]
            )


def _unpacked(sources: Path, name: str, folder: Path) -> Path:
    """A folder with the known inputs of a target, as libFuzzer wants them."""
    place, known = folder / f"known-{name}", sources / "fuzz/known" / f"{name}.base64"
    place.mkdir()
    for number, line in enumerate(known.read_text().split() if known.exists() else ()):
        (place / str(number)).write_bytes(base64.b64decode(line))
    return place


def _keep(sources: Path, name: str, folder: Path, command: list[str]) -> None:
    """Write the known inputs anew: of the old and what was found, those that reach code of their own."""
    merged = folder / f"merged-{name}"
    merged.mkdir()
    of = [str(folder / f"known-{name}"), str(folder / f"found-{name}")]
    merge = [*command, "-merge=1", f"-timeout={_INPUT_S}", str(merged), *of]
    subprocess.run(merge, check=True, capture_output=True)
    inputs = sorted((path.read_bytes() for path in merged.iterdir()), key=lambda data: (len(data), data))
    ends = itertools.accumulate(len(data) for data in inputs)
    kept = [data for data, end in zip(inputs, ends, strict=True) if data and end <= _KEPT_MOST]
    known = sources / "fuzz/known" / f"{name}.base64"
    known.parent.mkdir(exist_ok=True)
    known.write_text("".join(base64.b64encode(data).decode() + "\n" for data in kept))


def _complaint(sources: Path, name: str, folder: Path, status: int) -> str:
    """What libFuzzer said, without its thousands of lines of progress, and the input; empty: all is well."""
    text = (folder / f"{name}.log").read_text(errors="replace")
    runs = re.search(r"stat::number_of_executed_units: *(\d+)", text)
    if status == 0 and runs and int(runs[1]) > 100:
        return ""
    told = [line for line in text.splitlines() if not re.match(r"#\d+\s", line)]
    inputs = sorted(path for path in folder.glob(f"{name}-*") if path.is_file())
    encoded = re.findall(r"^Base64: (.*)$", text, re.MULTILINE)
    if inputs and not encoded:
        encoded = [subprocess.check_output(["base64", "-w0", inputs[0]], text=True)]
    seed = sources.resolve().relative_to(PROJECT) / "fuzz/corpus" / name / "NAME"
    again = f"keep it as a seed: echo {encoded[0]} | base64 -d > {seed}" if encoded else "no input was left"
    return "\n".join([f"fuzz_{name} found something; {again}", *told[-60:]])
