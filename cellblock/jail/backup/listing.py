# SPDX-License-Identifier: Apache-2.0
"""Writes and reads the list of a tree at the beginning of a backup, stored in the snapshot as `tree.zst`.

restic 0.14 keeps owners, modes, times, attributes, devices and hard links of regular files. It loses three
things (all were tried): holes of sparse files become zeros on the disk; hard links of symbolic links and
fifos become several files; bytes of a symbolic link's target that are not UTF-8 become U+FFFD. After a
restore the tree is compared with this list and these are repaired. The format is zstd of

    cellblock-listing 1
    f 644 0 0 104857600 1700000000000000000 sparse - home/ada/disk.img
    end 1 104857600

with the lines of a manifest (`cellblock.jail.tree.manifest`), except that content is not hashed: its field
is `-` or `sparse`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from cellblock.errors import CellblockError
from cellblock.jail.tree import manifest, walk
from cellblock.jail.tree.entry import Entry
from cellblock.jail.tree.file_handle import FileHandle, UnreadableError

NAME = "tree.zst"
SPARSE = "sparse"
_HEADER = b"cellblock-listing 1\n"
_WORTH_IT = 64 << 10
"""A file with fewer bytes in holes stays as restic makes it."""
FETCHED_AGAIN = ("/var/cache/enroot/users/*/*", "/var/cache/enroot/locks/*")
"""What the cache of container images holds (docs/pyxis.md), as restic's patterns: never in a snapshot. Its
directories are, with their modes."""
_FETCHED_AGAIN = re.compile(rb"var/cache/enroot/(users/[^/]+|locks)/")
_SHUT = (errno.EACCES, errno.EPERM)


@dataclass(frozen=True)
class Sum:
    """How many files, and the bytes that their contents take on a disk."""

    entries: int
    bytes: int


def write(path: Path, entries: Iterator[Entry]) -> Sum:
    """Write a listing to a new file. Raises OSError."""
    count = size = 0
    with path.open("xb") as file, zstandard.ZstdCompressor(level=3).stream_writer(file) as out:
        out.write(_HEADER)
        for entry in entries:
            out.write(manifest.line(entry))
            count += 1
            size += entry.size if entry.kind == "f" else 0
        out.write(b"end %d %d\n" % (count, size))
    return Sum(count, size)


def read(path: Path) -> Iterator[Entry]:
    """The entries of a listing, sorted by `entry.order`. Raises CellblockError when it is damaged."""
    count = 0
    try:
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            lines = io.BufferedReader(stream, 1 << 18)
            if lines.readline() != _HEADER:
                raise ValueError("its first line names another format")
            for text in lines:
                if text.startswith(b"end "):
                    if int(text.split()[1]) != count:
                        raise ValueError("its count is wrong")
                    return
                entry = manifest.parse(text)
                count += 1
                yield entry._replace(digest=SPARSE if entry.digest == SPARSE else "")
        raise ValueError("it was cut off")
    except (ValueError, zstandard.ZstdError) as error:
        raise CellblockError(
            f"{path}: damaged listing: {error}",
            hint="restore an older snapshot: `jail backup VOLUME REPO --list`",
        ) from None


def total(path: Path) -> Sum:
    """The sums of a listing."""
    entries = size = 0
    for entry in read(path):
        entries += 1
        size += entry.size if entry.kind == "f" else 0
    return Sum(entries, size)


def read_tree(root: bytes, too_long: Callable[[bytes], None] | None = None) -> Iterator[Entry]:
    """List every entry below `root`, sorted, while others write there; vanished files are left out.

    So are files of paths that are too long: `too_long` is called as by `walk`. The root itself (path
    `b""`) comes first. Raises OSError for what cannot be read at all.
    """
    first_names: dict[tuple[int, int], bytes] = {}
    with FileHandle(os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)) as top:
        first = _entry(b"", top, first_names)
    if first:
        yield first
    for seen in walk.walk(root, too_long=too_long):
        if _FETCHED_AGAIN.match(seen.path):
            continue
        entry = None
        handle = FileHandle.at(seen.folder, seen.name)
        if handle is not None:
            with handle, contextlib.suppress(UnreadableError):
                entry = _entry(seen.path, handle, first_names)
        if entry is not None:
            yield entry


def _entry(path: bytes, handle: FileHandle, first_names: dict[tuple[int, int], bytes]) -> Entry | None:
    entry, status = handle.entry(path, ""), handle.status
    if entry is None:
        return None  # a socket
    entry = entry._replace(mtime_ns=status.st_mtime_ns)  # of directories too
    if entry.kind != "d" and status.st_nlink > 1:
        first = first_names.setdefault((status.st_dev, status.st_ino), path)
        if first != path:
            return entry._replace(kind="h", target=first, device=(0, 0))
    return entry._replace(digest=SPARSE) if entry.kind == "f" and is_sparse(handle) else entry


def is_sparse(handle: FileHandle) -> bool:
    """Whether a regular file has holes worth keeping. Blocks alone do not tell: a filesystem may compress."""
    status = handle.status
    if status.st_size - status.st_blocks * 512 < _WORTH_IT:
        return False
    try:
        descriptor = handle.open()
    except UnreadableError:
        return False
    try:
        return os.lseek(descriptor, 0, os.SEEK_HOLE) < status.st_size
    except OSError:
        return False
    finally:
        os.close(descriptor)


def changed_since(root: bytes, moment_ns: int) -> Iterator[bytes]:
    """Files whose inode changed since `moment_ns`, by the clock of the volume's own server."""
    for seen in walk.walk(root, skip=_SHUT):  # what cannot be read has been reported by then
        if not stat.S_ISDIR(seen.status.st_mode) and seen.status.st_ctime_ns > moment_ns:
            yield seen.path
