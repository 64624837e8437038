"""Small files that must be whole after a power cut: the old one or the new one, never an empty one.

A rename reaches the disk before what the file holds, unless that is flushed first: ext4 and xfs leave a file
of 0 bytes then.
"""

from __future__ import annotations

import os
from pathlib import Path


def write(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Make or replace the file `path`: its content is on disk before it has the name, and then the name.

    Raises OSError. A killed run may leave `path` with `.new` appended.
    """
    new = path.with_name(f"{path.name}.new")
    put(new, text, mode=mode)
    new.replace(path)
    sync_directory(path.parent)


def put(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Fill the file `path`, whose name does not count yet, and flush it. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def flush(path: Path) -> None:
    """fsync(2) of a file that something else wrote. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """fsync(2) of a directory: the renames in it survive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
