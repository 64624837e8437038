# SPDX-License-Identifier: Apache-2.0
"""Walks a tree that its users can change meanwhile, and never leaves it.

Each directory is opened through its parent's descriptor and never through a symbolic link. By path, a
directory that users replace by a link to the host's /etc would be walked as part of the tree.

Files whose whole path is longer than a path may be (PATH_MAX) are left out. Users make directories without
end in a moment, one below the other: each file's path would be megabytes, and all of them together more
than a disk holds. No program opens such a file by its path, restic and tar among them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.text.printable import shown

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = 64
"""Directories that are open at once: a tree may be deeper than a process may open files."""
LONGEST = 4095
"""Bytes of a path, without the zero byte at its end: PATH_MAX (linux/limits.h)."""
_SHOWN = 120
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.ENAMETOOLONG)


@dataclass
class TooLong:
    """Counts the directories in which files were left out, and says so."""

    count: int = 0
    first: bytes = b""

    def __call__(self, folder: bytes) -> None:
        """Count `folder`."""
        self.first = self.first if self.count else folder
        self.count += 1

    def __str__(self) -> str:
        where = shown(self.first)
        where = where if len(where) <= _SHOWN else where[:_SHOWN] + "..."
        return (
            f"{self.count} directories hold files of paths longer than {LONGEST} bytes, below {where}: "
            "these files are left out"
        )


class Seen(NamedTuple):
    """One file: its path relative to the root, its status, and its name in the open directory `folder`.

    The descriptor is valid until the next file is asked for.
    """

    path: bytes
    status: os.stat_result
    folder: int
    name: bytes


@dataclass
class _Level:
    path: bytes
    names: Iterator[bytes]
    descriptor: int


def walk(
    root: bytes, skip: Collection[int] = (), too_long: Callable[[bytes], None] | None = None
) -> Iterator[Seen]:
    """List every file below `root`, sorted as by `entry.order`, without the root itself.

    What vanishes meanwhile is left out, as are directories that fail to open with an errno of `skip`, and
    files of paths that are too long: `too_long` is called once for each directory that has some. Raises
    OSError for what cannot be read.
    """
    gone = (*_GONE, *skip)
    longest = LONGEST - len(os.path.abspath(root)) - 1  # noqa: PTH100 - bytes
    with TreeAccess(root) as access:
        stack: list[_Level] = []
        try:
            _push(stack, b"", _reopened(access, b"", gone))
            reported: bytes | None = None
            while stack:
                level = stack[-1]
                name = next(level.names, None)
                if name is not None and level.descriptor < 0:
                    level.descriptor = _reopened(access, level.path, gone)
                if name is None or level.descriptor < 0:
                    _close(stack.pop())
                    continue
                path = level.path + b"/" + name if level.path else name
                if len(path) > longest:
                    if too_long is not None and reported != level.path:
                        too_long(level.path)
                    reported = level.path
                    continue
                try:
                    status = os.stat(name, dir_fd=level.descriptor, follow_symlinks=False)
                except OSError as error:
                    if error.errno in gone:
                        continue
                    raise
                yield Seen(path, status, level.descriptor, name)
                if stat.S_ISDIR(status.st_mode):
                    _push(stack, path, _opened(level.descriptor, name, path, gone))
        finally:
            for level in stack:
                _close(level)


def _push(stack: list[_Level], path: bytes, descriptor: int) -> None:
    if descriptor < 0:
        return
    if len(stack) >= _OPEN:
        _close(stack[-_OPEN])
    try:
        names = sorted(os.fsencode(name) for name in os.listdir(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    stack.append(_Level(path, iter(names), descriptor))


def _close(level: _Level) -> None:
    if level.descriptor >= 0:
        os.close(level.descriptor)
    level.descriptor = -1


def _opened(parent: int, name: bytes, path: bytes, gone: Collection[int]) -> int:
    """The directory as a descriptor; -1: it is none any more. Raises OSError."""
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno in gone:
            return -1
        raise OSError(error.errno, error.strerror, os.fsdecode(path)) from error


def _reopened(access: TreeAccess, path: bytes, gone: Collection[int]) -> int:
    """Open a directory by its path, one name after the other."""
    try:
        parent, name = access.at(path)
    except (FileNotFoundError, Blocked):
        return -1
    try:
        return _opened(parent, name, path, gone)
    finally:
        access.forget()  # of what is deep nothing is to stay open
