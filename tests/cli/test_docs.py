# SPDX-License-Identifier: Apache-2.0
"""What the pages tell people to type exists: each target and each of its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cellblock.cli.app import app
from cellblock.paths import PROJECT

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
# It takes a while to make.
_PROGRAM: Any = typer.main.get_command(app)
_LINE = re.compile(r"^ {4}(?:[A-Z_]+=\S+ )*python3 build\.py (.*?)(?: {2,}.*)?$", re.MULTILINE)


def typed(page: Path) -> list[str]:
    return _LINE.findall(page.read_text())


def commands(text: str) -> Iterator[tuple[Any, list[str]]]:
    """Each command that a line names, by `A | B` or `group A|B` more than one, and the words that follow."""
    targets = _PROGRAM.commands
    first, *others = text.split(" | ")
    # Others are the shell's: `graph | dot -Tpdf`.
    for part in (first, *(one for one in others if one.split()[0] in targets)):
        words = re.sub(r"[\[\]]", " ", part.partition(" #")[0]).split()
        found: list[Any] = [_PROGRAM]
        while words and hasattr(found[0], "commands"):
            group, names = found[0].commands, words.pop(0).split("|")
            found = [command for name in names if (command := group.get(name))]
            assert len(found) == len(names), f"{text}: there is no {names}"
        yield from ((command, words) for command in found)


def own_words(command: Any, words: list[str]) -> Iterator[str]:
    """The words that a command reads itself: not what follows `--`, or the program that `shell` runs."""
    with_value = {
        name
        for parameter in command.params
        for name in parameter.opts
        if not getattr(parameter, "is_flag", 0)
    }
    mixes = command.context_settings.get("allow_interspersed_args", True)
    before = ""
    for word in words:
        is_value = before in with_value
        if word == "--" or not (mixes or word.startswith("-") or is_value):
            return
        yield word
        before = word


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_and_options_of_a_page_exist(page: Path) -> None:
    for line in typed(page):
        for command, words in commands(line):
            known = {
                name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
            }
            for word in own_words(command, words):
                for option in re.findall(r"^-{1,2}[a-z][-a-z]*", word):
                    assert option in known | {"--help"}, f"{page.name}: {line}: no {option}"


def test_the_first_pages_say_something_to_type() -> None:
    assert len(typed(PROJECT / "README.md")) > 20
    assert len(typed(PROJECT / "docs" / "getting-started.md")) > 5
