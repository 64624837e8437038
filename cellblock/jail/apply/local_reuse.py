# SPDX-License-Identifier: Apache-2.0
"""Copies content that an upgrade needs from files of the jail instead of reading it from the source again.

This serves files that the new image only renames: the jail has their content under the old name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from cellblock.jail.source.scan import Blobs
from cellblock.jail.tree import manifest
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.entry import Entry
from cellblock.jail.tree.file_handle import FileHandle, UnreadableError
from cellblock.jail.volume.volume import Volume

_CHUNK = 1 << 20


def copy_from_tree(volume: Volume, wanted: Collection[str], blobs: Blobs) -> None:
    """Copy what of `wanted` some file of the tree still has; users may have changed it."""
    found: dict[str, Entry] = {}
    for line in _files(volume.manifest):
        digest = line.split(b" ", 7)[6].decode()
        if digest in wanted:
            found.setdefault(digest, manifest.parse(line))
    with TreeAccess(os.fsencode(volume.root)) as access:
        for digest, entry in found.items():
            with contextlib.suppress(Blocked, OSError, UnreadableError):
                handle = access.open_handle(entry.path)
                if handle is not None:
                    with handle:
                        # Of another size it is not read: users may have made it one of a terabyte.
                        if handle.kind == "f" and handle.status.st_size == entry.size:
                            _copy(handle, entry.size, digest, blobs)


def _files(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            if line[:2] == b"f ":
                yield line


def _copy(handle: FileHandle, left: int, digest: str, blobs: Blobs) -> None:
    total = hashlib.sha256()
    target = blobs.path(digest)
    temporary = target + b".moved"
    with os.fdopen(handle.open(), "rb") as source, open(temporary, "xb") as file:  # noqa: PTH123
        while data := source.read(min(_CHUNK, left)):
            total.update(data)
            file.write(data)
            left -= len(data)
    if total.hexdigest() == digest:
        os.rename(temporary, target)  # noqa: PTH104
    else:
        os.unlink(temporary)  # noqa: PTH108
