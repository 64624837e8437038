# SPDX-License-Identifier: Apache-2.0
"""Compares a manifest with a tree on disk, in threads and bounded memory, by the C code of native/tree_check.

It finds every difference. comparison.py in the folder above decides which of them are damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from enum import IntFlag
from pathlib import Path
from typing import NamedTuple

from cellblock._volume_scan import ffi, lib
from cellblock.errors import CellblockError
from cellblock.jail.tree import manifest
from cellblock.jail.tree.entry import Entry

_BLOCK = 4 << 20
"""Bytes of a manifest looked at in one go: some 30,000 files, so that threads wait for the last rarely."""


class Difference(IntFlag):
    """The kinds of difference; ATTRIBUTES only says that there are extended attributes to look at."""

    MISSING = lib.VOLUME_MISSING
    KIND = lib.VOLUME_KIND
    MODE = lib.VOLUME_MODE
    OWNER = lib.VOLUME_OWNER
    SIZE = lib.VOLUME_SIZE
    TIME = lib.VOLUME_TIME
    TARGET = lib.VOLUME_TARGET
    DEVICE = lib.VOLUME_DEVICE
    LINK = lib.VOLUME_LINK
    CONTENT = lib.VOLUME_CONTENT
    ATTRIBUTES = lib.VOLUME_ATTRIBUTES
    UNREADABLE = lib.VOLUME_UNREADABLE


class Found(NamedTuple):
    """An entry of the manifest that differs in the tree. `error` is an errno, or 0."""

    entry: Entry
    difference: Difference
    error: int


def default_threads() -> int:
    """Twice the processors: on a shared filesystem a thread mostly waits."""
    return 2 * len(os.sched_getaffinity(0))


def check(
    path: Path,
    root: Path,
    *,
    content: bool,
    threads: int | None = None,
    progress: Callable[[int], None] = lambda lines: None,
) -> Iterator[Found]:
    """Compare the tree at `root` with the manifest at `path`; with `content` all files are read.

    Yields what differs, in the manifest's order. Raises CellblockError when the manifest is damaged.
    """
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lines = 0
        for block in _blocks(path):
            yield from _check_block(path, block, descriptor, content, threads or default_threads())
            lines += block.count(b"\n")
            progress(lines)
    finally:
        os.close(descriptor)


def _blocks(path: Path) -> Iterator[bytes]:
    """Read a manifest's lines between its header and its end, in blocks of whole lines."""
    rest = b""
    with path.open("rb") as file:
        file.readline()
        while data := file.read(_BLOCK):
            data = rest + data
            end = data.rfind(b"\n") + 1
            block, rest = data[:end], data[end:]
            last = block.rfind(b"\nend ")
            if block.startswith(b"end "):
                return
            if last >= 0:
                block = block[: last + 1]
            if block:
                yield block


def _check_block(path: Path, block: bytes, root: int, content: bool, threads: int) -> list[Found]:
    capacity = block.count(b"\n")
    text = ffi.from_buffer(block)
    findings = ffi.new("struct volume_finding[]", capacity)
    request = ffi.new("struct volume_check *")
    request.root, request.text, request.length = root, text, len(block)
    request.threads, request.content = threads, content
    request.findings, request.capacity = findings, capacity
    error = ffi.new("struct volume_error *")
    if lib.volume_check(request, error) != 0:
        what = ffi.string(error.message).decode(errors="replace")
        raise CellblockError(
            f"cannot compare {path} with the tree: {what}",
            hint="check that path; if libcrypto is missing, install OpenSSL's library (libssl3)",
        )
    found = []
    for number in range(request.n_findings):
        one = findings[number]
        line = block[one.offset : block.index(b"\n", one.offset) + 1]
        found.append((one.offset, Found(manifest.parse(line), Difference(one.bits), one.number)))
    return [pair[1] for pair in sorted(found, key=lambda pair: pair[0])]
