"""Runs a program in a directory in which no symbolic link leads anywhere, whatever users do meanwhile.

    unfollowed.py DIRECTORY PROGRAM ARGUMENT...

restic opens what it stores by path, as root and outside the jail. A user who puts a link to the host's /etc
in the place of a directory, between restic's look at it and the opening of what is in it, would find the
host's /etc/shadow in the snapshot, and in a restored home. In a mount namespace of its own the directory is
mounted over itself with MOUNT_ATTR_NOSYMFOLLOW (mount_setattr(2), Linux 5.14): links can be read and not
followed.
Where that is not allowed (a pod without CAP_SYS_ADMIN) or not known, the program runs all the same, and one
line of JSON on stdout says so. Runs as a program, without the rest of Cellblock.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

_MS_REC, _MS_SLAVE, _CLONE_NEWNS = 0x4000, 0x80000, 0x20000
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _MOVE_EMPTY = 1, 0x04 | 0x40
_NOSYMFOLLOW = 0x00200000
# The numbers of these are the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442

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


if __name__ == "__main__":
    main(*sys.argv[1:])
