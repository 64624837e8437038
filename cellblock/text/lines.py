# SPDX-License-Identifier: Apache-2.0
"""Breaks text between words into the lines of a terminal, so that no word is cut at its edge.

A command between backquotes stays whole, because people copy it. Standard library only, because the launcher
breaks its errors, too.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"`[^`\n]*`\S*|\S+")


def broken(text: str, width: int | None, indent: int = 0) -> list[str]:
    """`text` in lines of at most `width`; what is longer and cannot be broken has a line of its own.

    Lines after the first begin with `indent` spaces. Without a `width` the text is one line. One that fits
    keeps its spaces, which may align it.
    """
    if width is None or len(text) <= width:
        return [text]
    line = text[: len(text) - len(text.lstrip())]
    # Nothing but the words that the others stand below, `next:` say, is no line of its own.
    lines, is_empty = [], True
    for word in _WORD.findall(text):
        if not is_empty and len(line) > indent and len(line) + 1 + len(word) > width:
            lines.append(line)
            line, is_empty = " " * indent, True
        line += word if is_empty else f" {word}"
        is_empty = False
    return [*lines, line]
