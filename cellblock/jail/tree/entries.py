# SPDX-License-Identifier: Apache-2.0
"""Walks a source directory that nobody changes meanwhile, and gives its entries in sorted order.

walk.py walks a jail's tree, which users change.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from cellblock.errors import CellblockError
from cellblock.jail.tree.entry import KINDS, Entry, Xattrs, kept_xattrs


def walk(root: bytes) -> Iterator[Entry]:
    """List every entry of the tree below `root`, sorted by `entry.order`, the root (path `b""`) first.

    Directories on other filesystems are entered like any other. Sockets are left out: one means
    something only to the process that listens on it. Raises CellblockError naming what cannot be read.
    """
    first_names: dict[tuple[int, int], bytes] = {}
    try:
        yield _entry(root, b"", os.lstat(root), first_names)
        yield from _walk_below(root, first_names)
    except OSError as error:
        name = os.fsdecode(error.filename) if error.filename else os.fsdecode(root)
        raise CellblockError(
            f"cannot read {name}: {error.strerror}", hint="check its permissions, and the disk"
        ) from error


def _walk_below(root: bytes, first_names: dict[tuple[int, int], bytes]) -> Iterator[Entry]:
    # A stack of iterators rather than recursion: a tree may be deeper than Python's call stack.
    stack = [_listing(root, b"")]
    while stack:
        listed = next(stack[-1], None)
        if listed is None:
            stack.pop()
            continue
        path = listed.path[len(root) + 1 :]
        status = listed.stat(follow_symlinks=False)
        if stat.S_ISSOCK(status.st_mode):
            continue
        yield _entry(listed.path, path, status, first_names)
        if stat.S_ISDIR(status.st_mode):
            stack.append(_listing(root, path))


def _listing(root: bytes, path: bytes) -> Iterator[os.DirEntry[bytes]]:
    with os.scandir(root + b"/" + path if path else root) as listing:
        return iter(sorted(listing, key=lambda listed: listed.name))


def _entry(
    where: bytes, path: bytes, status: os.stat_result, first_names: dict[tuple[int, int], bytes]
) -> Entry:
    kind = KINDS[stat.S_IFMT(status.st_mode)]
    target, device = b"", (0, 0)
    if kind != "d" and status.st_nlink > 1:
        # Two names of one inode; links from outside the tree count in st_nlink too and never show here.
        first = first_names.setdefault((status.st_dev, status.st_ino), path)
        if first != path:
            kind, target = "h", first
    if kind == "l":
        target = os.readlink(where)  # noqa: PTH115 - pathlib knows no paths of bytes
    elif kind in "cb":
        device = (os.major(status.st_rdev), os.minor(status.st_rdev))
    return Entry(
        path=path,
        kind=kind,
        mode=stat.S_IMODE(status.st_mode),
        uid=status.st_uid,
        gid=status.st_gid,
        # What a directory, fifo or device occupies is its filesystem's business.
        size=status.st_size if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) else 0,
        mtime_ns=status.st_mtime_ns,
        target=target,
        device=device,
        xattrs=read_xattrs(where),
    )


def read_xattrs(path: bytes) -> Xattrs:
    """The extended attributes of `path` itself (not of a link's target) that belong to a tree."""
    names = os.listxattr(path, follow_symlinks=False)
    if not names:
        return ()
    return kept_xattrs((os.fsencode(name), os.getxattr(path, name, follow_symlinks=False)) for name in names)
