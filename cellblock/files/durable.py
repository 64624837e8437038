# SPDX-License-Identifier: Apache-2.0
"""Writes small files whole: a reader sees either the old content or the new one.

`write` is for what must be there after a power cut. A rename reaches the disk before what the file holds,
unless that is flushed first: ext4 and xfs then leave a file of 0 bytes. `replace` does not flush, and is for
what can be made again: a flush beside a build that writes gigabytes waits for these gigabytes.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Make or replace the file `path`: its content is on disk before it has the name, and then the name.

    Raises OSError. A killed run may leave `path` with `.new` appended.
    """
    new = path.with_name(f"{path.name}.new")
    put(new, text, mode=mode)
    new.replace(path)
    sync_directory(path.parent)


def replace(path: Path, text: str) -> None:
    """Make or replace the file `path`, with the mode that the umask leaves. Raises OSError.

    Any number of processes may do so at once. A killed one may leave `path` with `.PID-RANDOM` appended.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


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
