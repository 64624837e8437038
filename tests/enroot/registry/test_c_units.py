"""The C unit tests of the registry client, one program a unit, and its fuzz targets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.c_fuzzing import fuzz
from tests.enroot.registry.conftest import SOURCES, make

FUZZ_SECONDS = int(os.environ.get("CELLBLOCK_FUZZ_SECONDS", "15"))
TARGETS = ("documents", "names")


@pytest.mark.parametrize("options", [[], ["SANITIZE=1"]], ids=["plain", "sanitized"])
def test_units(client_build: Path, options: list[str]) -> None:
    done = make(client_build, "check", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))


def test_no_input_breaks_a_target(tmp_path: Path) -> None:
    fuzz(SOURCES, TARGETS, tmp_path, seconds=FUZZ_SECONDS, max_len=2048)
