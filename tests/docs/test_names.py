# SPDX-License-Identifier: Apache-2.0
"""Pages name files, variables and examples that there are."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import definition
from cellblock.docs import c_tables, declared
from cellblock.docs.generated import pages
from cellblock.docs.meanings import ENVIRONMENT, NODE_ENVIRONMENT
from cellblock.paths import PROJECT

PAGES = [*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")]
_FOLDERS = "cellblock|native|spank_jail|enroot|pyxis|images|deploy|tests|docs"
# A path of the project in `code`, in a block, or as the target of a link.
_PATH = re.compile(rf"(?<![\w./~{{-])((?:{_FOLDERS})/[\w./*{{}},-]*[\w*}}])")
# What tutorials make, what pages show as an example, paths of other programs that begin alike, and
# this tree as a submodule.
_NOT_OURS = re.compile(
    r"images/(tools|NAME|IMAGE|up\.svg)\b|docs/.*NAME|enroot/(hooks\.d|mounts\.d|environ\.d|enroot\.conf|\.)"
    r"|cellblock/build\.py$"
)
_READ = re.compile(r"""environ(?:\.get\(|\[)\s*"([A-Z_]+)"|= "(CELLBLOCK_REGISTRY_[A-Z_]+)"$""", re.MULTILINE)

_NODES_READ = re.compile(r"\$\{?(CELLBLOCK_(?!PROGRAM|TEST)[A-Z_]+)")


def named(text: str) -> Iterator[str]:
    """Paths that a page names, `{a,b}` spelled out."""
    for path in _PATH.findall(text):
        found = re.search(r"\{([^}]+)\}", path)
        for each in found[1].split(",") if found else [""]:
            yield path.replace(found[0], each) if found else path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_each_file_that_a_page_names_exists(page: Path) -> None:
    paths = [path for path in named(page.read_text()) if not _NOT_OURS.search(path)]
    # A module may be named without its ending, a test with its function.
    missing = [
        path
        for path in paths
        if not any(list(PROJECT.glob(f"{path.rstrip('/')}{ending}")) for ending in ("", ".py", ".c", ".md"))
    ]
    assert missing == []


def test_paths_are_found_in_what_pages_look_like() -> None:
    text = (
        "`cellblock/a/{b,c}.py`, [x](tests/d.py::test_e) /usr/share/enroot/hooks.d ../docs/f.md cellblock/g."
    )
    assert list(named(text)) == ["cellblock/a/b.py", "cellblock/a/c.py", "tests/d.py", "cellblock/g"]


def test_each_variable_that_the_program_reads_is_in_the_reference() -> None:
    listed = ["git", "ls-files", "-z", "cellblock/*.py"]
    names = subprocess.run(listed, cwd=PROJECT, capture_output=True, check=True).stdout.decode().split("\0")
    texts = [path.read_text() for name in names if name and (path := PROJECT / name).exists()]
    read = {one or two for text in texts for one, two in _READ.findall(text)}
    assert read == set(ENVIRONMENT)


def test_each_variable_that_nodes_read_is_in_the_reference() -> None:
    listed = ["git", "ls-files", "-z", "images"]
    names = subprocess.run(listed, cwd=PROJECT, capture_output=True, check=True).stdout.decode().split("\0")
    texts = [
        path.read_text(errors="replace") for name in names if name and (path := PROJECT / name).is_file()
    ]
    assert {name for text in texts for name in _NODES_READ.findall(text)} == set(NODE_ENVIRONMENT)


def cells(page: str) -> Iterator[dict[str, str]]:
    """Rows of the tables of a page: heading -> cell."""
    for found in re.finditer(r"(?:^\|.*\n)+", page, re.MULTILINE):
        head, _, *rows = (re.split(r"(?<!\\)\|", line)[1:-1] for line in found[0].splitlines())
        for row in rows:
            yield {
                "table": str(found.start()),
                **{key.strip(): cell.strip() for key, cell in zip(head, row, strict=True)},
            }


@pytest.mark.parametrize("path", sorted(path for path in pages() if path.startswith("reference/")))
def test_no_cell_of_the_reference_is_empty_or_says_what_another_says(path: str) -> None:
    rows = list(cells(pages()[path]))
    assert rows
    assert [row for row in rows if not all(row.values())] == []
    told = [(row["table"], row.get("program"), row["meaning"]) for row in rows]
    assert sorted(told) == sorted(set(told)), "two rows of one table have the same meaning"


def test_each_key_of_an_image_has_a_meaning() -> None:
    keys = {one.alias or name for name, one in definition.ImageFields.model_fields.items()}
    assert set(declared.meanings_of_keys()) >= keys, "docs/definitions.md explains each key in its table"


def test_a_name_that_no_page_explains_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for maker in (c_tables.plan_page, c_tables.plugstack_page, c_tables.enroot_page):
        assert "| `" in maker()
    monkeypatch.delitem(c_tables.meanings.PLAN_OPTIONS, "nofail")
    with pytest.raises(c_tables.StaleDocsError, match=r"no meaning is written for \['nofail'\]"):
        c_tables.plan_page()
