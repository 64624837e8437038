# SPDX-License-Identifier: Apache-2.0
"""Tells the C code the digests of a manifest's files, so that it knows what content the volume has already.

They lie in an unnamed temporary file, of which each lookup reads a few hundred bytes. In memory the digests
of five million files would take 40 MB.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellblock._image_core import ffi, lib

_unset = ffi.new_allocator(should_clear_after_alloc=False)


@dataclass(frozen=True)
class KnownDigests:
    """`file` is a descriptor, `starts` the core's index of it; both as long as `known_digests` lasts."""

    file: int
    count: int
    starts: Any


def records_folder() -> Path:
    """Return the folder for temporary records: on a local disk, because /tmp may be in memory."""
    return Path("/var/tmp") if os.access("/var/tmp", os.W_OK) else Path(tempfile.gettempdir())


@contextmanager
def known_digests(path: Path) -> Iterator[KnownDigests]:
    """The first 8 bytes of the digest of each file of a manifest. Raises OSError."""
    with tempfile.TemporaryFile(dir=records_folder(), buffering=0) as kept:
        starts = ffi.new("uint32_t[]", lib.IMAGE_PICK_STARTS)
        yield KnownDigests(kept.fileno(), _fill(path, kept.fileno(), starts), starts)


def _fill(path: Path, descriptor: int, starts: Any) -> int:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            # No line of a file is shorter.
            room = _unset("uint64_t[]", len(text) // 80 + 1)
            count: int = lib.image_pick_digests(ffi.from_buffer(text), len(text), room)
    lib.image_pick_starts(room, count, starts)
    left = memoryview(ffi.buffer(room, 8 * count))
    while left:
        left = left[os.write(descriptor, left) :]
    return count
