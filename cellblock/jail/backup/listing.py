"""The list of a tree as it was when a backup began; it lies in the snapshot, as `tree.zst`.

restic 0.14 keeps owners, modes, times, attributes, devices and hard links of regular files, and loses three
things (all tried): holes of sparse files become zeros on the disk, hard links of symbolic links and fifos
become several files, and bytes of a symbolic link's target that are no UTF-8 become U+FFFD. What is restored
is compared with this list, and these are put right. Format: zstd of

    cellblock-listing 1
    f 644 0 0 104857600 1700000000000000000 sparse - home/ada/disk.img
    end 1 104857600

whose lines are a manifest's (`cellblock.jail.manifest`), except that no content is hashed: `-`, or `sparse`.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from cellblock.errors import CellblockError
from cellblock.jail import live_walk, manifest
from cellblock.jail.entry import KINDS, Entry
from cellblock.jail.live_walk import Seen
from cellblock.jail.tree import read_xattrs

NAME = "tree.zst"
SPARSE = "sparse"
_HEADER = b"cellblock-listing 1\n"
_WORTH_IT = 64 << 10
"""A file with fewer bytes in holes stays as restic makes it."""
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ELOOP, errno.EINVAL)
"""Of a file that was removed, or became another kind of file, since it was looked at."""
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
                raise ValueError("it begins otherwise")
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
            f"{path}: damaged listing: {error}", hint="restore an older snapshot: `jail backup --list`"
        ) from None


def total(path: Path) -> Sum:
    """The sums of a listing."""
    entries = size = 0
    for entry in read(path):
        entries += 1
        size += entry.size if entry.kind == "f" else 0
    return Sum(entries, size)


def walk(root: bytes) -> Iterator[Entry]:
    """Every entry below `root`, sorted, while others write there: what vanishes meanwhile is left out.

    The root itself (path `b""`) comes first. Raises OSError for what cannot be read at all.
    """
    first_names: dict[tuple[int, int], bytes] = {}
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        first = _entry(Seen(b"", os.fstat(top), top, b"."), first_names)
    finally:
        os.close(top)
    if first:
        yield first
    for seen in live_walk.walk(root):
        if _FETCHED_AGAIN.match(seen.path):
            continue
        try:
            entry = _entry(seen, first_names)
        except OSError as error:
            if error.errno in _GONE:
                continue
            raise
        if entry is not None:
            yield entry


def _entry(seen: Seen, first_names: dict[tuple[int, int], bytes]) -> Entry | None:
    path, status = seen.path, seen.status
    kind = KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is None:
        return None  # a socket
    target, device, digest = b"", (0, 0), ""
    if kind == "l":
        target = os.readlink(seen.name, dir_fd=seen.folder)
    elif kind in "cb":
        device = (os.major(status.st_rdev), os.minor(status.st_rdev))
    elif kind == "f" and is_sparse(seen):
        digest = SPARSE
    size = status.st_size if kind in "fl" else 0
    if kind != "d" and status.st_nlink > 1:
        first = first_names.setdefault((status.st_dev, status.st_ino), path)
        if first != path:
            kind, target, digest, device = "h", first, "", (0, 0)
    mode = stat.S_IMODE(status.st_mode)
    xattrs = read_xattrs(seen.magic)
    owner = (status.st_uid, status.st_gid)
    return Entry(path, kind, mode, *owner, size, status.st_mtime_ns, target, device, xattrs, digest)


def is_sparse(seen: Seen) -> bool:
    """Whether a regular file has holes worth keeping. Blocks alone do not tell: a filesystem may compress."""
    status = seen.status
    if status.st_size - status.st_blocks * 512 < _WORTH_IT:
        return False
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(seen.name, flags, dir_fd=seen.folder)
    try:
        return os.lseek(descriptor, 0, os.SEEK_HOLE) < status.st_size
    except OSError:
        return False
    finally:
        os.close(descriptor)


def changed_since(root: bytes, moment_ns: int) -> Iterator[bytes]:
    """Files whose inode changed since `moment_ns`, by the clock of the volume's own server."""
    for seen in live_walk.walk(root, skip=_SHUT):  # what cannot be read has been reported by then
        if not stat.S_ISDIR(seen.status.st_mode) and seen.status.st_ctime_ns > moment_ns:
            yield seen.path
