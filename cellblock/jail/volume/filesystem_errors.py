# SPDX-License-Identifier: Apache-2.0
"""Turns an error of the volume's filesystem, such as a full disk, into a message that says what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cellblock.errors import CellblockError


@contextmanager
def filesystem_errors(volume: Path, doing: str, *, when_full: str) -> Iterator[None]:
    """Turn OSError into CellblockError.

    `doing` completes "cannot ... VOLUME", `when_full` says what became of what had been written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CellblockError(
                f"{volume} is full; {when_full}",
                hint="free some space or use a larger volume, then run this again",
            ) from error
        where = os.fsdecode(error.filename) if error.filename else str(volume)
        raise CellblockError(
            f"cannot {doing} {volume}: {where}: {error.strerror or error}",
            hint="check that path and the filesystem, then run the same command again",
        ) from error
