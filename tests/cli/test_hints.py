# SPDX-License-Identifier: Apache-2.0
"""What the next step of an error tells people to type exists."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from typer.main import get_command

from cellblock.cli.app import app
from cellblock.paths import PROJECT

# What every command has, and options of dpkg, useradd and usermod.
_OTHERS = {"--help", "--audit", "--create-home", "--include-untracked", "--login", "--reinstall"}


@functools.cache
def sources() -> dict[Path, list[ast.AST]]:
    """Each source's nodes."""
    return {
        path: [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        for path in sorted((PROJECT / "cellblock").rglob("*.py"))
    }


def hints() -> Iterator[tuple[str, str]]:
    """Each hint's place and text, with `{}` for what is filled in."""
    for path, nodes in sources().items():
        for node in nodes:
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg == "hint":
                    parts = [
                        part.value if isinstance(part, ast.Constant) else "{}"
                        for part in ast.walk(keyword.value)
                        if isinstance(part, ast.Constant | ast.FormattedValue)
                    ]
                    yield f"{path.relative_to(PROJECT)}:{keyword.value.lineno}", " ".join(map(str, parts))


def texts() -> Iterator[tuple[str, str]]:
    """Each text of the sources that names a command of ours, with its place: hints made elsewhere, too."""
    for path, nodes in sources().items():
        inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            if id(node) in inside or not isinstance(node, ast.JoinedStr | ast.Constant):
                continue
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
            if "build.py " in text or "`jail " in text:
                yield f"{path.relative_to(PROJECT)}:{node.lineno}", text


def commands() -> dict[str, dict[str, click.Parameter]]:
    """The options of each command, by its words: `jail upgrade`."""
    found: dict[str, dict[str, click.Parameter]] = {}

    def add(command: click.Command, words: tuple[str, ...]) -> None:
        options = {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}
        found[" ".join(words)] = options
        for name, below in getattr(command, "commands", {}).items():
            add(below, (*words, name))

    add(PROGRAM, ())
    return found


# It takes a while to make.
PROGRAM = get_command(app)
KNOWN = commands()
OPTIONS = {name: option for options in KNOWN.values() for name, option in options.items()}


def lacking(line: str) -> str:
    """What a command line leaves out that its command must be given: typed as it stands, it fails."""
    words = re.sub(r"^(python3 )?(build\.py )?", "", line).split()
    command, options, at = PROGRAM, KNOWN[""], 0
    while at < len(words) and words[at] in getattr(command, "commands", {}):
        command, at = command.commands[words[at]], at + 1  # type: ignore[attr-defined]
        options = KNOWN[" ".join(words[:at])]
    given, value_of = 0, False
    for word in words[at:]:
        given += not value_of and not word.startswith("-")
        option = options.get(word)
        value_of = not value_of and option is not None and not getattr(option, "is_flag", False)
    must = [each.name for each in command.params if each.param_type_name == "argument" and each.required]
    return f"`{line}` lacks {must[given]}" if at and given < len(must) else ""


def faults(text: str) -> list[str]:
    """Commands and options that do not exist, values for options that take none, arguments left out."""
    named = re.findall(r"`(?:python3 )?build\.py ([a-z-]+)", text) + re.findall(r"`(jail [a-z-]+)", text)
    found = [f"no command {words}" for words in named if words not in KNOWN]
    lines = re.findall(r"`((?:python3 )?(?:build\.py|jail) [^`]+)`", text) if not found else ()
    found += [fault for line in lines if (fault := lacking(line))]
    for name, value in re.findall(r"(?<![\w-])(--[a-z][a-z-]*)(=\w)?", text):
        option = OPTIONS.get(name)
        if option is None and name not in _OTHERS:
            found.append(f"no option {name}")
        elif value and option is not None and getattr(option, "is_flag", False):
            found.append(f"{name} takes no value")
    return found


def test_what_errors_tell_to_type_exists() -> None:
    found = [(place, fault) for place, text in hints() for fault in faults(text)]
    assert found == []
    assert sum("--" in text for _, text in hints()) > 50


def test_a_command_about_a_cluster_names_it() -> None:
    """Or it is about another: that of the default name."""
    commands = "up|down|shell|status|logs|token|health|cluster"
    pattern = rf"`(?:python3 )?build\.py (?:{commands})\b[^`]*`"
    found = [(place, line) for place, text in hints() for line in re.findall(pattern, text)]
    assert [(place, line) for place, line in found if "{}" not in line] == []
    assert len(found) > 15


def test_the_first_word_of_shell_is_a_command() -> None:
    """`shell worker-1` looks for a program of that name, and looks at no node."""
    found = [
        (place, line) for place, text in texts() for line in re.findall(r"build\.py shell(?: [^`]*)?`", text)
    ]
    assert [(place, line) for place, line in found if re.search(r" shell \{\}[ `]", line)] == []
    assert len(found) > 2


def test_each_command_that_a_text_names_exists() -> None:
    named = r"`(?:python3 )?build\.py ([a-z][a-z-]*)|python3 build\.py ([a-z][a-z-]*)|`(jail [a-z-]+)"
    found = [
        (place, word)
        for place, text in texts()
        for words in re.findall(named, text)
        for word in words
        if word and word not in KNOWN
    ]
    assert found == []
    lines = [
        (place, line)
        for place, text in texts()
        for line in re.findall(r"`((?:python3 )?build\.py [^`]+)`", text)
    ]
    assert [
        (place, option)
        for place, line in lines
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", line)
        if option not in OPTIONS and option not in _OTHERS
    ] == []
    assert len(lines) > 50


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("give --tls-verify=false", "--tls-verify takes no value"),
        ("give --jailroot", "no option --jailroot"),
        ("`build.py biuld worker` makes it", "no command biuld"),
        ("`jail asemble` makes it", "no command jail asemble"),
        ("`jail backup --list`", "`jail backup --list` lacks volume"),
        ("`build.py push -v debian13` prints it", "`build.py push -v debian13` lacks repository"),
    ],
)
def test_what_does_not_exist_is_found(text: str, fault: str) -> None:
    assert faults(text) == [fault]
