# SPDX-License-Identifier: Apache-2.0
"""docs/threat-model.md names tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests.integration.escape.cases import (
    CASES,
    LAUNCH_FOR_NO_JOB,
    MANY_CONNECTIONS,
    ODD_SUBMISSIONS,
    ROGUE_CONTROLLER,
    STEPS_WITHOUT_END,
    STOPPED_CLIENTS,
)

_PAGE = PROJECT / "docs" / "threat-model.md"
_NAMED = re.compile(r"\b(tests/\S+?\.py)::(test_\w+)")
_CASE = re.compile(r"\bcase ([a-z0-9-]+)")
# Of the page's tables, a line of which has a column of tests.
_WITH_TESTS = "| who, by what | what would happen | what stands between | tests |"


def lines_with_tests(text: str) -> list[str]:
    """The lines of all tables that have the column."""
    found: list[str] = []
    for table in text.split(_WITH_TESTS)[1:]:
        rows = table.lstrip("\n").splitlines()[1:]
        found.extend(row for row in rows[: next((n for n, row in enumerate(rows) if not row), len(rows))])
    return found


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def missing(text: str) -> list[str]:
    """What a page names and nobody has."""
    alone = (
        LAUNCH_FOR_NO_JOB,
        MANY_CONNECTIONS,
        ODD_SUBMISSIONS,
        ROGUE_CONTROLLER,
        STEPS_WITHOUT_END,
        STOPPED_CLIENTS,
    )
    cases = {case.name for case in (*CASES, *alone)}
    wrong = [f"case {name}" for name in _CASE.findall(text) if name not in cases and name != "of"]
    for file, name in _NAMED.findall(text):
        path = PROJECT / file
        if not path.is_file() or name not in functions(path):
            wrong.append(f"{file}::{name}")
    return wrong


def test_every_test_that_is_named_exists() -> None:
    assert missing(_PAGE.read_text()) == []


def test_a_name_that_nobody_has_is_found() -> None:
    text = "case of-nobody, tests/test_threat_model.py::test_of_nobody, tests/test_nothing.py::test_it"
    assert len(missing(text)) == 3


@pytest.mark.parametrize("line", lines_with_tests(_PAGE.read_text()))
def test_each_line_names_its_test_or_says_that_it_is_in_work(line: str) -> None:
    assert _NAMED.search(line) or _CASE.search(line) or "(in work)" in line
