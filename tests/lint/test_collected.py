# SPDX-License-Identifier: Apache-2.0
"""pytest finds all tests: it goes into each folder of tests/, and no two files have one name there."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

from cellblock.paths import PROJECT

TESTS = PROJECT / "tests"


def test_no_folder_of_tests_is_left_out(pytestconfig: pytest.Config) -> None:
    patterns: list[str] = pytestconfig.getini("norecursedirs")
    files = [path.relative_to(PROJECT) for path in TESTS.rglob("test_*.py")]
    left_out = [
        str(path)
        for path in files
        if any(fnmatch(folder, pattern) for folder in path.parts[:-1] for pattern in patterns)
    ]
    assert len(files) > 100
    assert left_out == []


def test_files_of_one_name_are_in_packages() -> None:
    """Outside of one, pytest knows a file by its name alone and refuses the second."""
    names = [path.name for path in TESTS.rglob("test_*.py") if not (path.parent / "__init__.py").exists()]
    assert sorted({name for name in names if names.count(name) > 1}) == []
