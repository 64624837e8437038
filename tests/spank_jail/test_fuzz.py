"""libFuzzer on what reads hostile input: the plan's parser, the path resolver, the plugin's arguments.

All targets run at once, each for CELLBLOCK_FUZZ_SECONDS (60), from the seeds in spank_jail/fuzz/corpus.
Each is built with ASan and UBSan and checks invariants of its own; its file says which.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "spank_jail"
SECONDS = int(os.environ.get("CELLBLOCK_FUZZ_SECONDS", "60"))

# Made for the resolver's target: what a bug in it would reach is not the machine's.
NAMESPACES = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]


@dataclass(frozen=True)
class Target:
    """A libFuzzer program. libFuzzer prints inputs of up to 256 bytes as base64, so none is longer where
    its own file cannot be written: the resolver's "/" is another one while it runs.
    """

    name: str
    max_len: int
    prefix: tuple[str, ...] = ()


TARGETS = [
    Target("plan", 1024),
    Target("resolve", 256, tuple(NAMESPACES)),
    Target("arguments", 256),
]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in ("make", "clang"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed: `python3 build.py test` installs it")
    folder = tmp_path_factory.mktemp("fuzz")
    done = subprocess.run(
        ["make", "-C", SOURCES, "-j2", f"BUILD={folder}", "fuzz"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def start(build: Path, target: Target, log: Path) -> subprocess.Popen[bytes]:
    found = build / f"found-{target.name}"
    found.mkdir()
    command = [
        *target.prefix,
        str(build / f"fuzz_{target.name}"),
        f"-max_total_time={SECONDS}",
        f"-max_len={target.max_len}",
        "-timeout=10",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        f"-artifact_prefix={build}/{target.name}-",
        f"-dict={SOURCES}/fuzz/{target.name}.dict",
        str(found),
        str(SOURCES / "fuzz/corpus" / target.name),
    ]
    with log.open("wb") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT)


def complaint(target: Target, build: Path, text: str) -> str:
    """What libFuzzer said, without its thousands of lines of progress, and the input as base64."""
    told = [line for line in text.splitlines() if not re.match(r"#\d+\s", line)]
    inputs = sorted(build.glob(f"{target.name}-*"))
    encoded = re.findall(r"^Base64: (.*)$", text, re.MULTILINE)
    if inputs and not encoded:
        encoded = [subprocess.check_output(["base64", "-w0", inputs[0]], text=True)]
    seed = f"spank_jail/fuzz/corpus/{target.name}/NAME"
    again = f"keep it as a seed: echo {encoded[0]} | base64 -d > {seed}" if encoded else "no input was left"
    return "\n".join([f"fuzz_{target.name} found something; {again}", *told[-60:]])


def test_no_input_breaks_a_target(build: Path, namespaces: None) -> None:
    running = [
        (target, build / f"{target.name}.log", start(build, target, build / f"{target.name}.log"))
        for target in TARGETS
    ]
    complaints = []
    try:
        for target, log, process in running:
            status = process.wait(SECONDS + 120)
            text = log.read_text(errors="replace")
            runs = re.search(r"stat::number_of_executed_units: *(\d+)", text)
            if status or not runs or int(runs[1]) < 100:
                complaints.append(complaint(target, build, text))
    finally:
        for _, _, process in running:
            process.kill()
            process.wait()
    assert not complaints, "\n\n".join(complaints)


def test_every_target_has_seeds_and_words() -> None:
    names = {path.stem.removeprefix("fuzz_") for path in SOURCES.glob("fuzz/fuzz_*.c")}
    assert names == {target.name for target in TARGETS}
    for name in names:
        assert (SOURCES / f"fuzz/{name}.dict").is_file()
        assert list((SOURCES / "fuzz/corpus" / name).iterdir())
