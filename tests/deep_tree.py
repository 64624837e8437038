# SPDX-License-Identifier: Apache-2.0
"""Directories without end, one below the other, as a user makes them in a moment."""

from __future__ import annotations

import os
from pathlib import Path


def make_deep(top: Path, levels: int, *, files: bool = False) -> None:
    """Make `levels` directories "d" below the directory `top`.

    With `files` each but the deepest has a file "z" too, which comes after the next directory. pytest cannot
    remove them: cellblock.jail.tree.removal.remove_tree does.
    """
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        if files:
            os.close(os.open("z", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        os.mkdir("d", dir_fd=descriptor)
        deeper = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = deeper
    os.close(descriptor)
