# SPDX-License-Identifier: Apache-2.0
"""Prints the result of a command as one JSON object on one line of stdout, for `--json`."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any


def print_json(value: Any) -> None:
    """Print `value`, of JSON's types, tuples and paths. Raises TypeError for anything else."""
    print(json.dumps(value, default=_path))


def _path(value: object) -> str:
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{value!r} cannot be written as JSON")
