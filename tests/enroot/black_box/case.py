# SPDX-License-Identifier: Apache-2.0
"""Reads tables of cases for enroot's black-box test: what a user types, and what is printed.

    == the name of the case
    $ lines for bash, in an empty folder that is HOME too
    > lines of standard output, but for blanks around them; $HOME and $USER stand for themselves
    ~ or a pattern that is found in it
    ! a pattern that is found in standard error; without it there is no byte of it
    ? the exit status, where it is not 0

`enroot` is a command, `small` a container of that name, `$IMAGE` its image, `$SYSCONF` what stands for
/etc/enroot.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """One of them; `pattern` and `err` are regular expressions, "" where there is none."""

    name: str
    script: str
    out: str
    pattern: str
    err: str
    status: int


def read(path: Path) -> list[Case]:
    """The cases of a table. Raises ValueError for a line that is none, and a name that is there twice."""
    found: dict[str, dict[str, list[str]]] = {}
    lines: dict[str, list[str]] = defaultdict(list)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("== "):
            if line[3:] in found:
                raise ValueError(f"{path}:{number}: there is a case of this name: {line}")
            lines = found[line[3:]] = defaultdict(list)
        elif line and line[0] in "$>~!?" and line[1:2] in ("", " ") and found:
            lines[line[0]].append(line[2:])
        elif line and not line.startswith("# "):
            raise ValueError(f"{path}:{number}: no line of a case: {line}")
    return [
        Case(
            name,
            "\n".join(lines["$"]),
            "\n".join(lines[">"]).strip(),
            "\n".join(lines["~"]),
            "\n".join(lines["!"]),
            int("".join(lines["?"]) or 0),
        )
        for name, lines in found.items()
    ]
