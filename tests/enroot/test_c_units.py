# SPDX-License-Identifier: Apache-2.0
"""enroot's C unit tests, how it is hardened, and libFuzzer on what of it users and images wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.c_compiling import build_folder, make
from tests.c_fuzzing import fuzz
from tests.enroot.conftest import SOURCES
from tests.spank_jail.hardening import weaknesses

TARGETS = ("accounts", "environment_file", "rc")


def test_units_under_sanitizers() -> None:
    done = make(SOURCES, build_folder(SOURCES), "check", "SANITIZE=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))


def test_the_program_is_hardened(build: Path) -> None:
    if not shutil.which("readelf"):
        pytest.skip("readelf (binutils) is not installed")
    assert weaknesses(build / "enroot") == []


def test_no_input_breaks_a_target(tmp_path: Path) -> None:
    fuzz(SOURCES, TARGETS, tmp_path, max_len=512, dictionaries=True)


def test_every_target_is_run_and_has_seeds_and_words() -> None:
    assert {path.stem.removeprefix("fuzz_") for path in SOURCES.glob("fuzz/fuzz_*.c")} == set(TARGETS)
    for name in TARGETS:
        assert list((SOURCES / "fuzz/corpus" / name).iterdir())
        assert (SOURCES / f"fuzz/{name}.dict").is_file()
