# SPDX-License-Identifier: Apache-2.0
"""Holds the locks of dpkg and apt in a tree, so that no apt runs during an upgrade or a backup."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.file_handle import UnreadableError

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_FILES = (b"var/lib/dpkg/lock-frontend", b"var/lib/dpkg/lock")


@contextmanager
def apt_locked(root: Path, *, make: bool = True) -> Iterator[None]:
    """Lock as dpkg(1) does: with fcntl, so also against nodes that share the volume over NFS.

    Without `make`, a lock that dpkg has not made yet is not made, and keeps nobody out. Raises CellblockError
    when apt or dpkg is at work. A tree without dpkg has nothing to lock.
    """
    with ExitStack() as stack:
        for name in _FILES:
            descriptor = _open(root, name, make=make)
            if descriptor is None:
                continue
            stack.callback(os.close, descriptor)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise CellblockError(
                    f"apt or dpkg is at work in {root}: {os.fsdecode(name)} is locked; nothing was changed",
                    hint="wait until it is done, then run this again",
                ) from None
        yield


def _open(root: Path, name: bytes, *, make: bool) -> int | None:
    with TreeAccess(os.fsencode(root)) as access:
        try:
            parent, base = access.at(name)
            with contextlib.suppress(FileExistsError):
                if make:
                    return os.open(base, _NEW, 0o640, dir_fd=parent)
            handle = access.open_handle(name)
            if handle is None:
                return None  # they removed it in between: dpkg makes it anew, and does not find ours
            with handle:
                return handle.open(os.O_RDWR)
        except (FileNotFoundError, Blocked):
            return None
        except UnreadableError as error:
            raise CellblockError(
                f"{root}: {os.fsdecode(name)} is no file that can be locked: {error}; nothing was changed",
                hint="remove it in the jail: dpkg makes it anew",
            ) from None
