# SPDX-License-Identifier: Apache-2.0
"""The C unit tests, one program a unit, and libFuzzer on what reads files of users."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.c_fuzzing import fuzz
from tests.enroot.conftest import SOURCES, make
from tests.spank_jail.hardening import weaknesses

SECONDS = int(os.environ.get("CELLBLOCK_FUZZ_SECONDS", "15"))
TARGETS = ("accounts",)


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


def test_no_input_breaks_a_target(tmp_path: Path) -> None:
    fuzz(SOURCES, TARGETS, tmp_path, seconds=SECONDS, max_len=512, dictionaries=True)
