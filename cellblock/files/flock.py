# SPDX-License-Identifier: Apache-2.0
"""Locks files between processes by flock(2); the kernel releases the lock of a process that ended."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from cellblock.errors import CellblockError
from cellblock.privilege import AS_ROOT, needs_root
from cellblock.process import Interrupted

_POLL_S = 0.1


@contextmanager
def locked(
    path: Path,
    *,
    shared: bool = False,
    waiting: Callable[[], None] | None = None,
    stopped: threading.Event | None = None,
) -> Iterator[None]:
    """Hold the lock of the file at `path`, which is made; `shared` with others that hold it so.

    `waiting` is called once if somebody else holds it. Raises Interrupted when `stopped` is set
    meanwhile, CellblockError when the file cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        elsewhere = "set CELLBLOCK_CACHE to a folder that can be written"
        raise CellblockError(
            f"{path}: cannot be opened: {error.strerror}",
            hint=f"{AS_ROOT if needs_root(error) else 'make room'}, or {elsewhere}",
        ) from error
    with file:
        take(file, path, shared=shared, waiting=waiting, stopped=stopped)
        yield


def take(
    file: IO[str] | IO[bytes],
    path: Path,
    *,
    shared: bool = False,
    waiting: Callable[[], None] | None = None,
    stopped: threading.Event | None = None,
) -> None:
    """Take the lock of an open file, as `locked`; closing the file gives it back."""
    if _taken(file, shared=shared):
        return
    if waiting:
        waiting()
    # Not blocking in flock(2): Ctrl-C would have to wait for the other process.
    while not _taken(file, shared=shared):
        if stopped and stopped.is_set():
            raise Interrupted(f"stopped while waiting for {path}")
        time.sleep(_POLL_S)


def _taken(file: IO[str] | IO[bytes], *, shared: bool) -> bool:
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
