# SPDX-License-Identifier: Apache-2.0
"""What a checkout answers before anything is installed is what the commands say."""

from __future__ import annotations

import json
from typing import Any

from cellblock import paths
from cellblock.cli.first_answers import stored
from cellblock.launcher import first_answers

_WRITE = "write it again: .venv/bin/python -m cellblock.cli.first_answers"


def test_the_stored_answers_are_those_of_the_commands() -> None:
    found: dict[str, Any] = json.loads((paths.PROJECT / first_answers.STORED).read_text())
    now = stored()
    if found["typer"] != now["typer"]:
        # Another release of typer lays the words out in another way; the words are the same.
        for each in (found, now):
            words = {name: sorted(set(" ".join(lines).split())) for name, lines in each["help"].items()}
            each["help"] = {
                name: [one for one in all_ if one.startswith("-")] for name, all_ in words.items()
            }
    found.pop("typer")
    now.pop("typer")
    assert found == json.loads(json.dumps(now)), _WRITE
