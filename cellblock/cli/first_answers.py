# SPDX-License-Identifier: Apache-2.0
"""Writes launcher/first_answers.json, with the help texts that `build.py` prints before it is installed.

`python -m cellblock.cli.first_answers` runs it. launcher/first_answers.py reads the file.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterator
from typing import Any

import typer.main

from cellblock import paths
from cellblock.definition import ImageFields
from cellblock.launcher.first_answers import STORED, digest
from cellblock.project import Project
from cellblock.variants import candidates

_WIDTH = 78
"""Columns that click fills of a terminal of 80, or of one that does not say."""


def help_texts() -> dict[str, list[str]]:
    """Command ("" is build.py itself) -> the lines that its `--help` prints."""
    from cellblock.cli.app import app

    return dict(_helps(typer.main.get_command(app), None, "build.py"))


def _helps(command: Any, parent: Any, name: str) -> Iterator[tuple[str, list[str]]]:
    context = command.context_class(command, info_name=name, parent=parent, terminal_width=_WIDTH)
    yield context.command_path.removeprefix("build.py").strip(), command.get_help(context).splitlines()
    for each in getattr(command, "commands", {}).values():
        yield from _helps(each, context, each.name)


def stored() -> dict[str, Any]:
    """What the file is to hold."""
    variants = Project().variants
    return {
        # What wrote the texts: another release may lay them out in another way.
        "typer": importlib.metadata.version("typer"),
        "help": help_texts(),
        "image_keys": sorted(field.alias or name for name, field in ImageFields.model_fields.items()),
        "variants_sha256": digest(str(paths.PROJECT)),
        "variants": {name: variant.summary for name, variant in variants.items()},
        "candidates": candidates(variants),
    }


if __name__ == "__main__":
    (paths.PROJECT / STORED).write_text(json.dumps(stored(), indent=1, ensure_ascii=False) + "\n")
