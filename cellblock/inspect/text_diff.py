# SPDX-License-Identifier: Apache-2.0
"""Shows which lines of small text files differ between two images, for `build.py verify`.

It reads the layers a second time, because compare.py compares digests and keeps no content.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from itertools import islice

from cellblock.oci.layer_tar import members
from cellblock.oci.layout import Layout
from cellblock.oci.model import Descriptor

SMALL = 64 << 10
"""Bytes up to which a file is compared line by line."""

_LINES = 40
"""Of one file; what is behind them rarely says more about the cause."""

_BINARY = "\0"


def contents(layout: Layout, layers: Iterable[Descriptor], paths: frozenset[str]) -> dict[str, bytes]:
    """Contents of the files `paths` that are small, from `layers`, the lowest first; upper layers win.

    Hard links are not followed. Raises MalformedImage.
    """
    found: dict[str, bytes] = {}
    if paths:
        for layer in layers:
            for entry, stream in members(layout.blob(layer.digest)):
                if entry.path in paths and stream is not None and entry.size <= SMALL:
                    found[entry.path] = stream.read()
    return found


def text_diff(path: str, old: bytes | None, new: bytes | None) -> tuple[str, ...]:
    """A unified diff without its header lines, cut after 40; nothing when one is absent or no UTF-8 text."""
    if old is None or new is None:
        return ()
    try:
        before, after = old.decode(), new.decode()
    except UnicodeDecodeError:
        return ()
    if _BINARY in before or _BINARY in after:
        return ()
    lines: Iterator[str] = difflib.unified_diff(
        before.splitlines(), after.splitlines(), path, path, n=1, lineterm=""
    )
    wanted = list(islice(lines, 2, _LINES + 3))
    return tuple(wanted[:_LINES]) + (("...",) if len(wanted) > _LINES else ())
