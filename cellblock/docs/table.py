# SPDX-License-Identifier: Apache-2.0
"""Writes tables in Markdown for the pages that this folder makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a row of headings; `|` and line breaks in cells are escaped."""
    lines = [_row(head), "|" + "---|" * len(head), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def code(text: object) -> str:
    """`text` as code, or nothing where there is none."""
    return f"`{text}`" if str(text) else ""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
