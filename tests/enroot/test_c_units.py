"""The C unit tests, one program a unit, and libFuzzer on what reads files of users."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.enroot.conftest import SOURCES, make
from tests.spank_jail.hardening import weaknesses

SECONDS = int(os.environ.get("CELLBLOCK_FUZZ_SECONDS", "60"))
TARGETS = ("fstab", "settings")


def test_units(build: Path) -> None:
    done = make(build, "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))


def test_units_under_sanitizers(build: Path) -> None:
    done = make(build, "check", "SANITIZE=1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_program_is_hardened(build: Path) -> None:
    if not shutil.which("readelf"):
        pytest.skip("readelf (binutils) is not installed")
    assert weaknesses(build / "enroot") == []


def test_no_input_breaks_a_target(build: Path, tmp_path: Path) -> None:
    if not shutil.which("clang"):
        pytest.skip("clang is not installed: `python3 build.py test` installs it")
    done = make(build, "fuzz")
    assert done.returncode == 0, done.stdout + done.stderr
    running = []
    for name in TARGETS:
        (tmp_path / name).mkdir()
        command = [
            str(build / f"fuzz_{name}"),
            f"-max_total_time={SECONDS}",
            "-max_len=512",
            "-timeout=10",
            "-print_final_stats=1",
            f"-artifact_prefix={tmp_path}/{name}-",
            f"-dict={SOURCES}/fuzz/{name}.dict",
            str(tmp_path / name),
            str(SOURCES / "fuzz/corpus" / name),
        ]
        with (tmp_path / f"{name}.log").open("wb") as log:
            running.append((name, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
    for name, process in running:
        status = process.wait(SECONDS + 120)
        text = (tmp_path / f"{name}.log").read_text(errors="replace")
        runs = re.search(r"stat::number_of_executed_units: *(\d+)", text)
        assert status == 0, text[-3000:]
        assert runs, text[-3000:]
        assert int(runs[1]) > 100
