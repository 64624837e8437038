# SPDX-License-Identifier: Apache-2.0
"""Imports within cellblock/jail run one way: a folder imports only folders below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import paths

ORDER = ("tree", "source", "merge", "volume", "apply", "", "backup")
"""Lowest first. The empty name is that of the commands: the modules that lie in cellblock/jail itself."""

JAIL = paths.PROJECT / "cellblock/jail"


def imported(source: str) -> Iterator[str]:
    """Names of the modules below `cellblock.jail` that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        else:
            continue
        for name in names:
            if name.startswith("cellblock.jail."):
                yield name.removeprefix("cellblock.jail.")


def folder(module: str) -> str:
    first = module.partition(".")[0]
    return first if first in ORDER else ""


def upward(place: str, source: str) -> list[str]:
    """What a module of the folder `place` imports from above it."""
    return [name for name in imported(source) if ORDER.index(folder(name)) > ORDER.index(place)]


def modules() -> list[Path]:
    return [path.relative_to(JAIL) for path in sorted(JAIL.rglob("*.py"))]


def test_no_import_runs_up() -> None:
    found = {
        str(path): names
        for path in modules()
        if (names := upward(path.parts[0] if len(path.parts) > 1 else "", (JAIL / path).read_text()))
    }
    assert found == {}, f"the order is, lowest first: {', '.join(name or 'the commands' for name in ORDER)}"


def test_every_folder_has_its_place_in_the_order() -> None:
    assert {path.parts[0] for path in modules() if len(path.parts) > 1} == {*ORDER} - {""}


@pytest.mark.parametrize(
    "source",
    [
        "from cellblock.jail.apply import step",
        "from cellblock.jail.apply.step import Step",
        "import cellblock.jail.apply.step",
        "def late():\n    from cellblock.jail import upgrade",
        "if TYPE_CHECKING:\n    from cellblock.jail.upgrade import upgrade",
        "from cellblock.jail import backup",
    ],
)
def test_an_import_that_runs_up_is_found_wherever_it_stands(source: str) -> None:
    assert len(upward("volume", source)) == 1
    assert upward("backup", source) == []
