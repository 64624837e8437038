# SPDX-License-Identifier: Apache-2.0
"""Makes file names safe to print, because users may put escape sequences into a name."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text with what cannot be printed escaped: control characters, what turns the direction of writing."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shown(path: bytes) -> str:
    """A path of a tree: as it is where it is UTF-8 and can be printed, escaped where not."""
    return "/" + printable(path.decode("utf-8", "backslashreplace"))
