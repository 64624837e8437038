# SPDX-License-Identifier: Apache-2.0
"""Imports within a large package run one way: a folder imports only folders below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import paths

ORDER = {
    "jail": ("tree", "source", "merge", "volume", "apply", "", "backup"),
    "cluster": ("definition", "facts", "configuration", "engine", "changing", "rotating", "", "upgrading"),
    "bench": ("inputs", "harness", "peers", "parts", ""),
}
"""Lowest first. The empty name is that of the commands: the modules that lie in the package itself."""


def imported(package: str, source: str) -> Iterator[str]:
    """Names of the modules below `cellblock.PACKAGE` that a module imports, wherever in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        else:
            continue
        for name in names:
            if name.startswith(f"cellblock.{package}."):
                yield name.removeprefix(f"cellblock.{package}.")


def upward(package: str, place: str, source: str) -> list[str]:
    """What a module of the folder `place` imports from above it."""
    order = ORDER[package]

    def height(module: str) -> int:
        folder = module.partition(".")[0]
        return order.index(folder if folder in order else "")

    return [name for name in imported(package, source) if height(name) > order.index(place)]


def modules(package: str) -> dict[Path, str]:
    """The modules of a package below its folder, with their text."""
    top = paths.PROJECT / "cellblock" / package
    return {path.relative_to(top): path.read_text() for path in sorted(top.rglob("*.py"))}


@pytest.mark.parametrize("package", ORDER)
def test_no_import_runs_up(package: str) -> None:
    found = {
        str(path): names
        for path, text in modules(package).items()
        if (names := upward(package, path.parts[0] if len(path.parts) > 1 else "", text))
    }
    order = ", ".join(name or "the commands" for name in ORDER[package])
    assert found == {}, f"the order is, lowest first: {order}"


@pytest.mark.parametrize("package", ORDER)
def test_every_folder_has_its_place_in_the_order(package: str) -> None:
    assert {path.parts[0] for path in modules(package) if len(path.parts) > 1} == {*ORDER[package]} - {""}


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
    assert len(upward("jail", "volume", source)) == 1
    assert upward("jail", "backup", source) == []
