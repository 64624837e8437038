# SPDX-License-Identifier: Apache-2.0
"""Makes the working folders of builds, and removes those that a killed build left.

A folder belongs to the process that holds the flock(2) of its lock file.

    FOLDER/PID-RANDOM        one working root; the pid is for a person who looks
    FOLDER/PID-RANDOM.lock   held as long as the root is in use

The pid proves nothing: builds in two containers may share the folder, and each container numbers processes by
itself. The kernel releases a lock however its holder ends; `sweep` removes folders whose lock nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_LOCK = ".lock"


class WorkFolders:
    """Working folders below `folder`, which is made when the first is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def new(self) -> Iterator[Path]:
        """A new, empty folder for the block, removed afterwards."""
        with self._owned() as folder:
            try:
                folder.mkdir()
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def discard(self, path: Path) -> None:
        """Remove the folder `path` of this file system: under its name it is there whole or not at all."""
        with self.new() as folder, suppress(FileNotFoundError):
            path.rename(folder / "discarded")

    def sweep(self) -> None:
        """Remove the folders whose owners are gone."""
        for lock in self._folder.glob(f"*{_LOCK}"):
            with suppress(FileNotFoundError), lock.open("rb") as file:
                if _take(file, wait=False):
                    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                    lock.unlink(missing_ok=True)
        # Without a lock: its owner ended between removing both, or was another version of Cellblock.
        for path in self._folder.glob("*"):
            if path.suffix != _LOCK and not path.with_name(f"{path.name}{_LOCK}").exists():
                shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _owned(self) -> Iterator[Path]:
        """A name below the folder that is this process's; nothing is there yet."""
        self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            folder = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}"
            lock = folder.with_name(f"{folder.name}{_LOCK}")
            with lock.open("xb") as file:
                _take(file, wait=True)
                # A sweep may have found the lock before it was held, and removed it.
                if os.fstat(file.fileno()).st_nlink:
                    try:
                        yield folder
                        return
                    finally:
                        lock.unlink(missing_ok=True)


def _take(file: IO[bytes], *, wait: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
