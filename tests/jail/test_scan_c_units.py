"""The C unit tests of the comparison of manifests with trees, one program a unit, and its fuzz targets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests.c_compiling import build_folder, make
from tests.c_fuzzing import fuzz

SOURCES = PROJECT / "cellblock/jail/scan"
SECONDS = int(os.environ.get("CELLBLOCK_SCAN_FUZZ_SECONDS", "4"))
"""How long each target runs, all at once."""


@pytest.mark.parametrize("options", [[], ["SANITIZE=1"], ["SANITIZE=thread"]], ids=["plain", "asan", "tsan"])
def test_units(options: list[str]) -> None:
    variant = "tsan" if "SANITIZE=thread" in options else ""
    done = make(SOURCES, build_folder(SOURCES, variant), "check", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))


def test_no_input_breaks_a_target(tmp_path: Path) -> None:
    names = sorted(path.stem for path in SOURCES.glob("fuzz/fuzz_*.c"))
    assert names == ["fuzz_check", "fuzz_line"]
    targets = [name.removeprefix("fuzz_") for name in names]
    fuzz(SOURCES, targets, tmp_path, seconds=SECONDS, max_len=1024)
