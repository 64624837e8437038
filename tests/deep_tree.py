# SPDX-License-Identifier: Apache-2.0
"""Makes directories nested without end, as a user can, and removes them after the test.

pytest cannot remove them: it ends with a RecursionError, some runs later. Those of a run that was killed are
removed when the next one begins.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
import time
from pathlib import Path

_made: list[tuple[Path, Path]] = []
"""The directories of this process's trees, each with the note that names it."""


def make_deep(top: Path, levels: int, *, files: bool = False) -> None:
    """Make `levels` directories "d" below the directory `top`, which is removed when the test ends.

    With `files` each but the deepest has a file "z" too, which comes after the next directory.
    """
    notes().mkdir(mode=0o700, exist_ok=True)
    note = notes() / f"{os.getpid()}-{len(_made)}-{time.monotonic_ns()}"
    note.symlink_to(top.absolute())  # made whole or not at all: half a path would be another folder's
    _made.append((top.absolute(), note))
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        if files:
            os.close(os.open("z", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        os.mkdir("d", dir_fd=descriptor)
        deeper = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)


def notes() -> Path:
    """The folder with a link for each tree that is there: PID-..., to its top."""
    return Path(tempfile.gettempdir()) / f"cellblock-deep-{os.getuid()}"


def remove_made() -> None:
    """Remove the trees that this process made."""
    while _made:
        top, note = _made.pop()
        _remove(top)
        note.unlink(missing_ok=True)


def remove_left() -> None:
    """Remove the trees of processes that are no more, and what pytest gave up to remove."""
    for note in notes().glob("*-*"):
        try:
            os.kill(int(note.name.partition("-")[0]), 0)
        except ProcessLookupError:
            _remove(note.readlink())
            note.unlink(missing_ok=True)
    # It gives a folder this name when it begins to remove it, and tries again at the end of each run.
    for folder in Path(tempfile.gettempdir(), f"pytest-of-{getpass.getuser()}").glob("garbage-*"):
        _remove(folder)


def _remove(top: Path) -> None:
    from cellblock.jail.tree.removal import remove_tree  # not where there is pytest alone

    with contextlib.suppress(OSError):  # the test has removed it, or another pytest does so now
        remove_tree(top)
