# SPDX-License-Identifier: Apache-2.0
"""Runs restic, or another program, in a directory in which symbolic links are never followed.

    nosymfollow.py DIRECTORY PROGRAM ARGUMENT...

restic opens files by path, as root and outside the jail. A user could replace a directory by a link to the
host's /etc, between restic's look at the directory and its opening of a file in it; the snapshot would then
have the host's /etc/shadow. So the directory is mounted over itself, in a mount namespace of its own, with
MOUNT_ATTR_NOSYMFOLLOW (mount_setattr(2), Linux 5.14): links can be read but not followed. Where the kernel
does not know that or does not allow it (a pod without CAP_SYS_ADMIN), the program runs all the same, and
one line of JSON on stdout says so. This file runs as a program and imports nothing of Cellblock.

A FIFO in the place of a file makes restic's open(2) wait for a writer for ever, and no mount option forbids
that. So a second process checks once a second what the program's threads wait for. A thread that waits for
a FIFO gets a signal that a Go program ignores, which begins its open(2) again, for whatever has the name by
then. If that is still the FIFO, it is opened for writing and closed again, which ends the wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

_MS_REC, _MS_SLAVE, _CLONE_NEWNS = 0x4000, 0x80000, 0x20000
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_EMPTY = 1, 0x04 | 0x40
_NOSYMFOLLOW = 0x00200000
# The numbers of these are the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442

_LOOK_S = 1.0
_PATIENCE = 30
"""Looks at one wait, of two kinds in turn: then users exchange the FIFO as fast, and the program is ended."""
MESSAGE = "links-are-followed"
"""The `message_type` of the line."""


def main(directory: str, *command: str) -> None:
    """Replace this process by the program."""
    try:
        _unfollow(directory)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        sys.stdout.write(json.dumps({"message_type": MESSAGE, "why": why}) + "\n")
        sys.stdout.flush()
    os.chdir(directory)
    _watch(os.getpid())
    os.execvp(command[0], command)


def _unfollow(directory: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def checked(name: str, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
        return result

    checked("unshare", libc.unshare(_CLONE_NEWNS))
    checked("mount", libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))
    flags = ctypes.c_uint(_OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE)
    path = os.fsencode(directory)
    tree = checked("open_tree", libc.syscall(_OPEN_TREE, _AT_FDCWD, path, flags))
    attributes = (ctypes.c_uint64 * 4)(_NOSYMFOLLOW, 0, 0, 0)
    recursive = ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    checked("mount_setattr", libc.syscall(_MOUNT_SETATTR, tree, b"", recursive, attributes, size))
    place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    checked("move_mount", libc.syscall(_MOVE_MOUNT, tree, b"", place, b"", ctypes.c_uint(_MOVE_EMPTY)))


def _watch(program: int) -> None:
    """Start the process that ends the program's waits for FIFOs. It ends with the program."""
    if os.fork() == 0:
        try:
            for descriptor in range(3):  # who reads the program's output waits for its end
                os.close(descriptor)
            waited: dict[str, int] = {}
            while os.getppid() == program:
                time.sleep(_LOOK_S)
                waited = {task: waited.get(task, 0) + 1 for task in _waiting(program)}
                for task, times in waited.items():
                    _end_wait(program, task, times)
        finally:
            os._exit(0)


def _waiting(program: int) -> list[str]:
    """The threads of the program that wait in open(2) of a FIFO."""
    found = []
    for task in Path(f"/proc/{program}/task").iterdir():
        with contextlib.suppress(OSError):
            if (task / "wchan").read_text().strip() in ("wait_for_partner", "fifo_open"):
                found.append(task.name)
    return found


def _end_wait(program: int, task: str, times: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        if times >= _PATIENCE:
            os.kill(program, signal.SIGTERM)  # it would hold the volume's lock for ever
        elif times % 2:
            libc = ctypes.CDLL(None, use_errno=True)
            libc.tgkill(program, int(task), signal.SIGURG)
        else:
            path = _opened_path(program, task)
            # Not to be waited for in turn; a link, or a FIFO that nobody reads, is an error.
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))


def _opened_path(program: int, task: str) -> bytes:
    """The path that the thread gave to openat(2)."""
    address = int(Path(f"/proc/{program}/task/{task}/syscall").read_text().split()[2], 16)
    memory = os.open(f"/proc/{program}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Within the page, at first: what follows it may not be there.
        text = os.pread(memory, 4096 - address % 4096, address)
        if b"\0" not in text:
            text += os.pread(memory, 4096, address + len(text))
    finally:
        os.close(memory)
    return text.partition(b"\0")[0]


if __name__ == "__main__":
    main(*sys.argv[1:])
