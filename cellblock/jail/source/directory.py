# SPDX-License-Identifier: Apache-2.0
"""Reads a directory that holds a root filesystem, as a source of find.py."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock.jail.source.identity import SourceIdentity
from cellblock.jail.source.stream import SourceStream
from cellblock.jail.tree import entries, manifest


@dataclass(frozen=True)
class DirectorySource:
    """A root directory."""

    reference: str
    path: Path

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Hash its listing: owners, modes, sizes, times and attributes; content only shows as a time."""
        total = hashlib.sha256()
        for entry in entries.walk(os.fsencode(self.path.resolve())):
            total.update(manifest.line(entry))
        return SourceIdentity("directory", self.reference, "sha256:" + total.hexdigest())

    @contextmanager
    def feed(self, note: Path) -> Iterator[SourceStream]:
        """Give the directory's path."""
        yield stream_of_directory(self.path.resolve())


def stream_of_directory(folder: Path) -> SourceStream:
    """Describe a directory, with its sizes: its metadata is cached since it was walked for the identity."""
    stream, seen = SourceStream(directory=folder), set[tuple[int, int]]()
    for place, folders, files in os.walk(os.fsencode(folder)):
        stream.files += 1 + len(files)
        for name in (*folders, *files):
            status = os.lstat(place + b"/" + name)
            if stat.S_ISLNK(status.st_mode) and name in folders:
                stream.files += 1
            if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
                continue
            if status.st_nlink > 1:
                seen.add((status.st_dev, status.st_ino))
            stream.total += status.st_size
            stream.needs += min(status.st_size, status.st_blocks * 512)
    return stream
