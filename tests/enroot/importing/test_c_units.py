# SPDX-License-Identifier: Apache-2.0
"""The C unit tests of importing, one program a unit, and its fuzz targets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests.c_fuzzing import fuzz
from tests.enroot.importing.conftest import SOURCES, make
from tests.spank_jail.hardening import weaknesses

TARS = PROJECT / "native/layers/fuzz/corpus/tar"


def test_units(importer_build: Path) -> None:
    done = make(importer_build, "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tests/test_*.c")))


def test_the_program_is_hardened(importer_build: Path) -> None:
    if not shutil.which("readelf"):
        pytest.skip("readelf (binutils) is not installed")
    assert weaknesses(importer_build / "enroot-image") == []


def test_no_input_breaks_a_target(tmp_path: Path) -> None:
    """Under the sanitizers, which the units are not run with: their code is in the targets."""
    targets = ("config", "squashfs")
    fuzz(SOURCES, targets, tmp_path, max_len=8192, corpora={"squashfs": TARS})
