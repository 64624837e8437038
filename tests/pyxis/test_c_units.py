# SPDX-License-Identifier: Apache-2.0
"""The C unit tests of the container plugin, one program a unit, and libFuzzer on what users write."""

from __future__ import annotations

from pathlib import Path

from tests.c_compiling import build_folder, make
from tests.c_fuzzing import fuzz

SOURCES = Path(__file__).parents[2] / "pyxis"
TARGETS = ("request", "arguments", "log", "environment")


def test_units_under_sanitizers() -> None:
    done = make(SOURCES, build_folder(SOURCES), "check", "SANITIZE=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))


def test_no_input_breaks_a_target(tmp_path: Path) -> None:
    fuzz(SOURCES, TARGETS, tmp_path, max_len=512, dictionaries=True)
