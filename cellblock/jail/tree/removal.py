# SPDX-License-Identifier: Apache-2.0
"""Removes a folder that Cellblock made but that may hold files of users, however deep.

shutil.rmtree calls itself for each level and raises RecursionError at a thousand levels, which users can
make in a moment. Here a directory that is not empty is first renamed to the top, so that none is ever deep.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove `path`, a directory of root's, and all that is below it. Follows no link. Raises OSError.

    What users still have open there they may write to meanwhile: then this raises ENOTEMPTY.
    """
    top = os.open(path, _FOLDER)
    try:
        for name in _names(top):
            _remove(top, name, top)
        # What was deep is at the top by now, and each round removes all that it finds.
        while names := _names(top):
            for name in names:
                _remove(top, name, top)
    finally:
        os.close(top)
    path.rmdir()


def _remove(parent: int, name: bytes, top: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=parent)
        except IsADirectoryError:
            _empty(parent, name, top)


def _empty(parent: int, name: bytes, top: int) -> None:
    """Remove a directory of the top; the directories in it come to the top."""
    descriptor = os.open(name, _FOLDER, dir_fd=parent)
    try:
        for inner in _names(descriptor):
            try:
                os.unlink(inner, dir_fd=descriptor)
            except IsADirectoryError:
                _raise_to_top(descriptor, inner, top)
    finally:
        os.close(descriptor)
    os.rmdir(name, dir_fd=parent)


def _raise_to_top(parent: int, name: bytes, top: int) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        os.rename(name, b"deep-" + secrets.token_hex(8).encode(), src_dir_fd=parent, dst_dir_fd=top)


def _names(descriptor: int) -> list[bytes]:
    return [os.fsencode(name) for name in os.listdir(descriptor)]
