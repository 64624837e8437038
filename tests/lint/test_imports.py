# SPDX-License-Identifier: Apache-2.0
"""Imports run one way: a package imports what lies below it, and no two packages import each other.

An import inside a function counts, too: it hides a circle from Python and not from a reader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from cellblock import paths

LAYERS = (
    # What everything may use. process and files raise typed errors; text and machine know nothing else.
    ("errors", "cache_key", "paths", "retries"),
    ("events", "process", "bind_mount", "privilege", "text", "yaml_source"),
    ("files", "machine", "slurm_releases"),
    # Before the command line: it runs when nothing is installed.
    ("launcher",),
    # What is declared.
    ("definition", "variants"),
    ("graph", "template"),
    ("overrides",),
    ("project",),
    # One format or program each.
    ("oci",),
    ("debian",),
    ("lock", "engine"),
    ("packages",),
    ("attest", "cuda", "slurm"),
    # What builds keep, and what it takes; it asks packages and oci, which lie below it.
    ("store",),
    ("build", "jail"),
    ("inspect", "release", "ci", "cluster", "metrics"),
    # The cluster in another place: it renders what cluster describes.
    ("kubernetes",),
    ("bench", "doctor"),
    ("cli",),
    # The reference is generated from the commands.
    ("docs",),
)
"""The packages and modules directly in cellblock/, lowest first. Those of one line do not know each other."""

UP = {("cellblock/cli/docs.py", "cellblock.docs.site")}
"""Imports that run up: the command `docs` starts what lies above it."""

PACKAGE = paths.PROJECT / "cellblock"


def top(module: str) -> str:
    """The package or module directly in cellblock that `module` is or is in: cellblock.oci.push -> oci."""
    return module.split(".")[1]


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules of Cellblock that a file imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("cellblock."))
        elif isinstance(node, ast.ImportFrom) and node.module == "cellblock":
            yield from (f"cellblock.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cellblock."):
            yield str(node.module)


def parts() -> list[str]:
    """The packages and modules directly in cellblock/."""
    folders = (path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    return [*folders, *(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")]


def faults(files: Iterable[tuple[Path, str]]) -> list[str]:
    """Each import that runs up, or aside: FILE imports MODULE."""
    level = {name: number for number, names in enumerate(LAYERS) for name in names}
    return [
        f"{path} imports {module}"
        for path, text in files
        for module in imported(ast.parse(text))
        if (own := path.parts[1].removesuffix(".py")) != (other := top(module))
        # Compiled modules, and the version of the package itself, lie below everything.
        and not other.startswith("_")
        and level[other] >= level[own]
        and (str(path), module) not in UP
    ]


def test_imports_run_down() -> None:
    sources = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    texts = [(path.relative_to(paths.PROJECT), path.read_text(encoding="utf-8")) for path in sources]
    assert faults(texts) == [], "LAYERS in this file says what lies below what"


def test_each_package_has_its_layer() -> None:
    assert sorted(name for names in LAYERS for name in names) == sorted(parts())


@pytest.mark.parametrize(
    "text",
    [
        "from cellblock.build.run import build_images",
        "def late() -> None:\n    from cellblock import build\n",
        "import cellblock.packages.store",
        "from cellblock.engine import apt",
    ],
)
def test_an_import_that_runs_up_or_aside_is_found(text: str) -> None:
    path = Path("cellblock/lock/x.py")
    assert len(faults([(path, text)])) == 1
    assert faults([(path, "from cellblock.oci.model import Manifest")]) == []
