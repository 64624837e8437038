# SPDX-License-Identifier: Apache-2.0
"""Reads a tree in a form to compare: all but owners, /dev, and the three files that the runtime adds."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

GENERATED = frozenset({b"etc/rc", b"etc/fstab", b"etc/environment", b"dev"})
"""The files that an import writes itself, and the directory that it empties."""


@dataclass(frozen=True)
class Entry:
    """One name of a tree."""

    kind: int
    mode: int
    mtime: int
    """Seconds; 0 for directories: writing into one changes it."""
    content: bytes
    """A file's digest, a link's target, a device's number."""
    xattrs: tuple[tuple[str, bytes], ...]
    links: tuple[bytes, ...]
    """All names of the file, where there are several."""


def _content(path: bytes, status: os.stat_result) -> bytes:
    if stat.S_ISREG(status.st_mode):
        with Path(os.fsdecode(path)).open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
            return digest.digest()
    if stat.S_ISLNK(status.st_mode):
        return os.fsencode(Path(os.fsdecode(path)).readlink())
    if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        return str(status.st_rdev).encode()
    return b""


def _xattrs(path: bytes) -> tuple[tuple[str, bytes], ...]:
    try:
        names = sorted(os.listxattr(path, follow_symlinks=False))
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        names = []  # an image without any
    return tuple(
        (name, os.getxattr(path, name, follow_symlinks=False)) for name in names if name != "security.selinux"
    )


def read_tree(root: Path, *, xattrs: bool = True) -> dict[bytes, Entry]:
    """All of a tree by its paths, which are bytes: names need not be text."""
    top = os.fsencode(root)
    statuses: dict[bytes, os.stat_result] = {}
    names: dict[tuple[int, int], list[bytes]] = {}
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = folder + b"/" + name
            status = os.lstat(path)
            relative = os.path.relpath(path, top)
            statuses[relative] = status
            if not stat.S_ISDIR(status.st_mode):
                names.setdefault((status.st_dev, status.st_ino), []).append(relative)
    tree = {}
    for relative, status in statuses.items():
        if relative in GENERATED or relative.startswith(b"dev/"):
            continue
        path = top + b"/" + relative
        is_folder = stat.S_ISDIR(status.st_mode)
        linked = names.get((status.st_dev, status.st_ino), [])
        tree[relative] = Entry(
            kind=stat.S_IFMT(status.st_mode),
            mode=stat.S_IMODE(status.st_mode),
            mtime=0 if is_folder else status.st_mtime_ns // 10**9,
            content=_content(path, status),
            xattrs=_xattrs(path) if xattrs else (),
            links=tuple(sorted(linked)) if len(linked) > 1 else (),
        )
    return tree
