# SPDX-License-Identifier: Apache-2.0
"""How enroot is hardened, and libFuzzer on what of it reads files of users; units are in tests/native."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.c_fuzzing import fuzz
from tests.enroot.conftest import SOURCES
from tests.spank_jail.hardening import weaknesses

SECONDS = int(os.environ.get("CELLBLOCK_FUZZ_SECONDS", "15"))
TARGETS = ("accounts",)


def test_the_program_is_hardened(build: Path) -> None:
    if not shutil.which("readelf"):
        pytest.skip("readelf (binutils) is not installed")
    assert weaknesses(build / "enroot") == []


def test_no_input_breaks_a_target(tmp_path: Path) -> None:
    fuzz(SOURCES, TARGETS, tmp_path, seconds=SECONDS, max_len=512, dictionaries=True)
