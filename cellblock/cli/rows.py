# SPDX-License-Identifier: Apache-2.0
"""Prints lists of words with explanations, and tables; lines break between words on a narrow terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence

from cellblock.text.lines import broken


def columns() -> int | None:
    """Columns of the terminal that stdout is; None where it is none: programs read whole lines."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


class Whole(str):
    """Text that is never broken: a command to copy."""

    __slots__ = ()


def print_rows(rows: Iterable[tuple[str, str]], indent: str = "  ") -> None:
    """Print each word with what it is about, aligned."""
    print(*lines_of_rows(list(rows), columns(), indent), sep="\n")


def lines_of_rows(rows: Sequence[tuple[str, str]], width: int | None, indent: str = "  ") -> list[str]:
    """The lines of `rows`, broken at spaces where a terminal has only `width` columns."""
    first = max(map(len, (word for word, _ in rows)), default=0) + 2
    lines = []
    for word, text in rows:
        room = None if width is None or isinstance(text, Whole) else width - len(indent) - first
        head, *rest = broken(text, room)
        lines.append(f"{indent}{word:{first}}{head}".rstrip())
        lines += [f"{indent}{'':{first}}{line}" for line in rest]
    return lines


def lines_of_table(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """A table whose first row is its head; in a terminal too narrow for it, one `HEAD value` a line."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(text.ljust(room) for text, room in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if width is None or all(len(line) <= width for line in lines):
        return lines
    head, *others = rows
    first = max(map(len, head[1:]))
    lines = []
    for row in others:
        lines.append(row[0])
        lines += [f"  {name:{first}}  {text}" for name, text in zip(head[1:], row[1:], strict=True)]
    return lines
