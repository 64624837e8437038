# SPDX-License-Identifier: Apache-2.0
"""Computes the SHA-256 of many small files of a tree, several at once where the processor can.

merge/planner.py hashes with it the files of the tree that users may have changed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from cellblock._image_core import ffi, lib
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.file_handle import Stamp, UnreadableError

_SMALL = 4 << 20
_TOGETHER = 16 << 20
"""Bytes of content that are in memory at once, and one file's more."""

Known = dict[tuple[bytes, Stamp], str]
"""(path, stamp) -> digest: that of the content, as far as the stamp can say what the content is."""


def of_small_files(access: TreeAccess, paths: Iterable[bytes]) -> Known:
    """The digests of those of `paths` that are regular files up to 4 MiB and can be read; no others."""
    found: Known = {}
    waiting: list[tuple[bytes, Stamp]] = []
    contents: list[bytes] = []
    size = 0

    def hash_waiting() -> None:
        found.update(zip(waiting, of_contents(contents), strict=True))
        waiting.clear()
        contents.clear()

    for path in paths:
        with contextlib.suppress(OSError, Blocked, UnreadableError):
            descriptor = access.open(path)
            try:
                stamp = Stamp.of(os.fstat(descriptor))
                if stamp.size > _SMALL:
                    continue
                content = _read(descriptor, stamp.size)
            finally:
                os.close(descriptor)
            if len(content) != stamp.size:
                continue  # it is being written
            waiting.append((path, stamp))
            contents.append(content)
            size += len(content)
        if size >= _TOGETHER:
            hash_waiting()
            size = 0
    hash_waiting()
    return found


def of_contents(contents: Sequence[bytes]) -> list[str]:
    """The digest of each, in hexadecimal."""
    count = len(contents)
    digests = bytearray(32 * count)
    buffers = [ffi.from_buffer(content) for content in contents]
    with ffi.from_buffer("unsigned char[]", digests) as room:
        every = ffi.new("struct sha256_one[]", count)
        for number, buffer in enumerate(buffers):
            one = every[number]
            one.data, one.length, one.digest = buffer, len(buffer), room + 32 * number
        lib.image_sha256_many(every, count)
    return [digests[start : start + 32].hex() for start in range(0, 32 * count, 32)]


def _read(descriptor: int, size: int) -> bytes:
    """Up to one byte more than `size`."""
    content = os.read(descriptor, size + 1)
    while 0 < len(content) <= size and (more := os.read(descriptor, size + 1 - len(content))):
        content += more
    return content
