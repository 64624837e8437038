"""The C unit tests of the image core, one program a unit, and its fuzz targets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "enroot/image"
FUZZ_SECONDS = int(os.environ.get("CELLBLOCK_FUZZ_SECONDS", "20"))


def make(build: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    for tool in ("make", "gcc"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    command = ["make", "-C", str(SOURCES), "-j2", f"BUILD={build}", *targets]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("options", [[], ["SANITIZE=1"]], ids=["plain", "sanitized"])
def test_units(tmp_path: Path, options: list[str]) -> None:
    done = make(tmp_path, "check", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))


def test_no_input_breaks_a_fuzz_target(tmp_path: Path) -> None:
    if not shutil.which("clang"):
        pytest.skip("clang is not installed: `python3 build.py test` installs it")
    done = make(tmp_path, "fuzz")
    assert done.returncode == 0, done.stdout + done.stderr
    running = []
    names = sorted(path.stem for path in SOURCES.glob("fuzz/fuzz_*.c"))
    assert names == ["fuzz_merge", "fuzz_tar"]
    for name in names:
        found = tmp_path / f"found-{name}"
        found.mkdir()
        seeds = SOURCES / "fuzz/corpus" / name.removeprefix("fuzz_")
        options = [f"-max_total_time={FUZZ_SECONDS}", "-max_len=8192", "-timeout=10", "-print_final_stats=1"]
        command = [
            str(tmp_path / name),
            *options,
            f"-artifact_prefix={tmp_path}/{name}-",
            str(found),
            str(seeds),
        ]
        with (tmp_path / f"{name}.log").open("wb") as log:
            running.append((name, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
    for name, process in running:
        status = process.wait(FUZZ_SECONDS + 120)
        text = (tmp_path / f"{name}.log").read_text(errors="replace")
        runs = re.search(r"number_of_executed_units: *(\d+)", text)
        assert status == 0, text[-4000:]
        assert runs, text[-4000:]
        assert int(runs[1]) > 100


def test_files_stay_small() -> None:
    for path in SOURCES.rglob("*.[ch]"):
        assert len(path.read_text().splitlines()) <= 400, f"{path} does too much"
