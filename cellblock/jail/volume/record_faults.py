# SPDX-License-Identifier: Apache-2.0
"""Finds damaged records of past transactions, for `jail history` and `jail status`.

It reads only the ends of files, so that a list of many is quick: a power cut or a failing disk leaves a file
that is missing, empty, cut off or full of zeros. A rollback checks more closely all that it needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail.tree.spooled_map import NoRoomError
from cellblock.jail.volume import history
from cellblock.jail.volume.volume import Volume

_END = 4096
"""Bytes at the end of a file that hold its last line."""
_ZSTD = b"\x28\xb5\x2f\xfd"


def faults(volume: Volume, listed: Iterable[history.Done | history.Damaged]) -> dict[int, CellblockError]:
    """Return what is wrong with the records of transactions, by number; the whole ones are left out."""
    found = (
        (one.number, one.why if isinstance(one, history.Damaged) else _fault(volume, one)) for one in listed
    )
    return {number: why for number, why in found if why is not None}


def _fault(volume: Volume, done: history.Done) -> CellblockError | None:
    """Return what is wrong with the record of `done`, or None.

    What a rollback has undone, and a rollback itself, is never undone again: of these the plan alone counts,
    which says what users kept.
    """
    try:
        with history.whole(done.folder, is_needed=done.can_be_undone):
            _check_plan(done)
            if done.can_be_undone:
                _check_undoable(volume, done.folder)
    except NoRoomError:
        raise
    except CellblockError as error:
        return error
    return None


def last_line(path: Path) -> bytes:
    """Return the last line of a file, empty when it has none. Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _END))
        return next(iter(file.read().splitlines()[-1:]), b"")


def _check_plan(done: history.Done) -> None:
    path = done.folder / "plan"
    try:
        end = json.loads(last_line(path))
    except ValueError:
        end = None
    if end != {"end": done.actions}:
        raise ValueError(
            f"{path} is cut off or empty: it does not end with the last of {done.actions} actions"
        )


def _check_undoable(volume: Volume, folder: Path) -> None:
    for name in ("before", "after"):
        with (folder / name).open("rb") as file:
            if file.read(len(_ZSTD)) != _ZSTD:
                raise ValueError(f"{folder / name} is empty or no list of databases")
    old = folder / "old"
    try:
        state = volume.read_state(old)
    except ValueError as error:
        raise ValueError(f"{old / 'state.json'}: {error}") from error
    words = last_line(old / "manifest").split()
    if words[:1] != [b"end"] or words[2:] != [state.manifest_sha256.encode()]:
        raise ValueError(f"{old / 'manifest'} is cut off or empty")
    if not (folder / "kept").is_dir():
        raise ValueError(f"{folder / 'kept'} is missing")
