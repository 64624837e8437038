# SPDX-License-Identifier: Apache-2.0
"""The C unit tests of the libraries in native/, one program a unit."""

from __future__ import annotations

import subprocess

import pytest

from cellblock.paths import PROJECT
from tests.c_compiling import build_folder, make

SOURCES = PROJECT / "native"


@pytest.mark.parametrize("options", [[], ["SANITIZE=1"]], ids=["plain", "sanitized"])
def test_units(options: list[str]) -> None:
    build = build_folder(SOURCES)
    done = make(SOURCES, build, "check", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("*/tests/test_*.c")))
    if options:
        linked = subprocess.run(["ldd", build / "sanitized/test_plan"], capture_output=True, text=True).stdout
        assert "libasan" in linked
        assert "libubsan" in linked


def test_threads_of_the_comparison_with_a_tree() -> None:
    """Its threads share what they find."""
    done = make(SOURCES, build_folder(SOURCES, "tsan"), "check-tree_check", "SANITIZE=thread")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(", 0 failed") == len(list(SOURCES.glob("tree_check/tests/test_*.c")))
