# SPDX-License-Identifier: Apache-2.0
"""Looks up single lines of a manifest by binary search, without reading all of it.

manifest_diff.py reads two manifests whole.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cellblock._image_core import ffi, lib
from cellblock.jail.tree import manifest
from cellblock.jail.tree.entry import Entry, order

_TOGETHER = 4096
_NONE = 2**64 - 1


class ManifestIndex:
    """A manifest that was opened by `opened`."""

    def __init__(self, text: mmap.mmap) -> None:
        self._text = text
        self._start = len(manifest.HEADER)
        self._end = text.rfind(b"\nend ") + 1

    def line(self, start: int) -> bytes:
        """The line that begins there, with its newline."""
        return self._text[start : self._text.find(b"\n", start) + 1]

    def entry(self, path: bytes) -> Entry | None:
        """The entry of a path, if it has one."""
        start = self._place(order(path))
        if start >= self._end:
            return None
        found = manifest.parse(self.line(start))
        return found if found.path == path else None

    def below(self, folder: bytes) -> Iterator[Entry]:
        """The entries of what is in a folder, and of itself."""
        start = self._place(order(folder))
        while start < self._end:
            line = self.line(start)
            entry = manifest.parse(line)
            if entry.path != folder and not entry.path.startswith(folder + b"/"):
                return
            yield entry
            start += len(line)

    def _place(self, key: bytes) -> int:
        """Return the offset of the first line that does not sort before `key`."""
        low, high = self._start, self._end
        while low < high:
            middle = self._text.rfind(b"\n", 0, (low + high) // 2) + 1
            middle = max(middle, low)
            end = self._text.find(b"\n", middle) + 1
            if order(manifest.unescape(self._text[middle : end - 1].rpartition(b" ")[2])) < key:
                low = end
            else:
                high = middle
        return low


@contextmanager
def opened(path: Path) -> Iterator[ManifestIndex]:
    """Open a manifest for lookups while the block lasts. It must be complete: see `manifest_diff.check`."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        yield ManifestIndex(text)


def side_by_side(base: Path, new: Path) -> Iterator[tuple[bytes | None, bytes | None]]:
    """The lines of two manifests that differ, by path; and those of hard links also where they are equal."""
    with (
        base.open("rb") as left,
        new.open("rb") as right,
        mmap.mmap(left.fileno(), 0, access=mmap.ACCESS_READ) as one,
        mmap.mmap(right.fileno(), 0, access=mmap.ACCESS_READ) as other,
    ):
        texts = [ffi.from_buffer(one), ffi.from_buffer(other)]
        try:
            lines = [
                ffi.new(
                    "struct image_lines *", {"text": text, "length": len(file), "at": len(manifest.HEADER)}
                )
                for text, file in zip(texts, (one, other), strict=True)
            ]
            found = ffi.new("struct image_difference[]", _TOGETHER)
            while count := lib.image_manifest_compare(*lines, found, _TOGETHER):
                for number in range(count):
                    pair = found[number]
                    yield _line(left, pair.a), _line(right, pair.b)
        finally:
            for text in texts:
                ffi.release(text)


def _line(file: IO[bytes], start: int) -> bytes | None:
    # Not from the mapping: each look at it brings 64 KiB back into memory.
    if start == _NONE:
        return None
    file.seek(start)
    return file.readline()
