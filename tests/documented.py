# SPDX-License-Identifier: Apache-2.0
"""Finds the code blocks of README.md and docs/, and the test that types each (tests/docs/blocks.yaml).

A test asks for its own blocks (`blocks_for`, `lines_for`), so what a page gains in them is typed, too.
tests/lint/test_pages.py fails for a block that the list does not have.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from cellblock.paths import PROJECT

LIST = PROJECT / "tests/docs/blocks.yaml"
_FENCED = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# After an empty line four columns make a block; a list's items go on so, too, and none has one.
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}\S.*\n(?:(?: {4}.*)?\n)*)")
_COMMENT = re.compile(r"\s+#\s.*$")
# Seconds for one command; the first one may build images.
_TIMEOUT_S = 1500


@dataclass(frozen=True)
class Block:
    """One code block of a page; `language` is "" for an indented one."""

    page: str
    number: int
    language: str
    text: str

    @property
    def first(self) -> str:
        """What the list knows it by: the beginning of its first line."""
        return self.text.strip().partition("\n")[0]

    @property
    def lines(self) -> list[str]:
        """What is typed: without comments, a line that goes on (`\\`) as one."""
        whole = re.sub(r"\s*\\\n\s*", " ", self.text)
        return [_COMMENT.sub("", line.strip()) for line in whole.splitlines() if line.strip()]


def pages() -> list[Path]:
    """README.md and all pages below docs/."""
    return [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """As the list has it: the path below docs/, or README.md."""
    return page.name if page.parent == PROJECT else str(page.relative_to(PROJECT / "docs"))


def blocks_of(page: Path) -> Iterator[Block]:
    """All blocks but flowcharts, which are drawn."""
    text = page.read_text()
    without = _FENCED.sub(lambda found: re.sub(r"[^\n]", "`", found[0]), text)
    found = [(each.start(), each[1], each[2]) for each in _FENCED.finditer(text)]
    found += [(each.start(), "", each[0]) for each in _INDENTED.finditer(without)]
    for start, language, content in sorted(found):
        if language != "mermaid":
            yield Block(name_of(page), text.count("\n", 0, start) + 1, language, content)


def listed() -> dict[str, list[dict[str, str]]]:
    """Page -> entries, each with `block` and either `typed` (a test) or `not_typed` (the reason).

    Of a page that one test types as a whole there is one entry, for the beginning "" of all blocks.
    """
    return {
        page: [{"block": "", "typed": entries["whole"]}] if isinstance(entries, dict) else entries
        for page, entries in yaml.safe_load(LIST.read_text()).items()
    }


def blocks_for(page: str, test: str) -> list[Block]:
    """The blocks of a page that the list gives to the test `test`, a function's name."""
    path = PROJECT / page if page == "README.md" else PROJECT / "docs" / page
    starts = [
        entry["block"] for entry in listed()[page] if entry.get("typed", "").rpartition("::")[2] == test
    ]
    blocks = [block for block in blocks_of(path) if block.first.startswith(tuple(starts))]
    assert blocks, f"tests/docs/blocks.yaml gives no block of {page} to {test}"
    return blocks


def lines_for(page: str, test: str) -> list[str]:
    """All lines of these blocks."""
    return [line for block in blocks_for(page, test) for line in block.lines]


def type_line(
    line: str,
    folder: Path,
    *,
    variables: Mapping[str, str] | None = None,
    allowed: Collection[int] = (0,),
) -> str:
    """Type a line to a shell in `folder`; returns what it prints. `build.py` there is the project's."""
    program = f"{sys.executable} -m cellblock.cli "
    done = subprocess.run(
        ["bash", "-c", line.replace("python3 build.py ", program)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(PROJECT), **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode in allowed, f"{line}\nstatus {done.returncode}\n{done.stdout}"
    return done.stdout
