"""The C unit tests of the image core, one program a unit, and its fuzz targets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.c_compiling import build_folder, make
from tests.c_fuzzing import fuzz

SOURCES = Path(__file__).parents[3] / "enroot/image"
FUZZ_SECONDS = int(os.environ.get("CELLBLOCK_FUZZ_SECONDS", "15"))


@pytest.mark.parametrize("options", [[], ["SANITIZE=1"]], ids=["plain", "sanitized"])
def test_units(options: list[str]) -> None:
    done = make(SOURCES, build_folder(SOURCES), "check", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))


def test_no_input_breaks_a_target(tmp_path: Path) -> None:
    names = sorted(path.stem for path in SOURCES.glob("fuzz/fuzz_*.c"))
    assert names == ["fuzz_compare", "fuzz_listing", "fuzz_merge", "fuzz_tar"]
    targets = [name.removeprefix("fuzz_") for name in names]
    fuzz(SOURCES, targets, tmp_path, seconds=FUZZ_SECONDS, max_len=8192)
