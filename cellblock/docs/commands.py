# SPDX-License-Identifier: Apache-2.0
"""Makes the reference page of commands: each with its arguments and options, as the program declares them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer.main

from cellblock.docs.table import code, table


def commands_page() -> str:
    """The page `reference/commands.md`."""
    from cellblock.cli.app import app

    root = typer.main.get_command(app)
    parts = [
        "# Commands",
        "*Reference. Made from the program: each command, argument and option.*",
        "All are words after `python3 build.py`. `--help` after any of them prints the same.",
        _options(root, root.context_class(root, info_name="build.py")),
        *_sections(root, "", None),
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _sections(group: Any, prefix: str, parent: Any) -> Iterator[str]:
    context = group.context_class(
        group, info_name="build.py" if parent is None else group.name, parent=parent
    )
    for name, command in group.commands.items():
        path = f"{prefix} {name}".strip()
        yield f"## {path}" if not prefix else f"### {path}"
        if hasattr(command, "commands"):
            yield _prose(command.help)
            yield from _sections(command, path, context)
            continue
        own = command.context_class(command, info_name=name, parent=context)
        usage = " ".join(command.collect_usage_pieces(own))
        yield f"```text\npython3 build.py {path} {usage}\n```"
        yield _prose(command.help)
        yield _arguments(command, own)
        yield _options(command, own)


def _prose(text: str | None) -> str:
    # What stands in angle brackets would be taken for HTML.
    return inspect.cleandoc(text or "").replace("<", "&lt;")


def _arguments(command: Any, context: Any) -> str:
    rows = [
        (code(" ".join(one.get_usage_pieces(context))), _text(one.help))
        for one in command.params
        if one.param_type_name == "argument" and not one.hidden
    ]
    return table(("argument", "meaning"), rows) if rows else ""


def _options(command: Any, context: Any) -> str:
    rows = []
    for one in command.params:
        # As `--help` has it: names with a value, and the meaning.
        record = one.get_help_record(context) if one.param_type_name == "option" else None
        if record:
            rows.append((", ".join(code(name) for name in re.split(r", | / ", record[0])), _text(record[1])))
    return table(("option", "meaning"), rows) if rows else ""


def _text(help_text: str | None) -> str:
    return re.sub(r"<(\w)", r"&lt;\1", help_text or "")
