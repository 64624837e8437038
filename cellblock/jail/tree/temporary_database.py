"""A database of this process alone, in a file without a name: what does not fit in memory."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from cellblock.errors import CellblockError

_CACHE_KIB = 8192


class NoRoomError(CellblockError):
    """What does not fit in memory does not fit on the disk either; of a volume that says nothing."""


class TemporaryDatabase:
    """SQLite's kind of it: the file is gone with the process. It lies in TMPDIR, or in /var/tmp."""

    def __init__(self, schema: str) -> None:
        # One transaction that never ends, and that nobody could roll back: nothing waits for the disk.
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for line in ("journal_mode = OFF", "temp_store = FILE", f"cache_size = -{_CACHE_KIB}"):
            self._connection.execute(f"PRAGMA {line}")
        self._connection.execute("BEGIN")
        self._connection.execute(schema)

    def __del__(self) -> None:
        self._connection.close()

    def run(self, statement: str, *values: Any) -> None:
        """Execute one statement. Raises NoRoomError when the disk is full."""
        with _told():
            self._connection.execute(statement, values)

    def rows(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """What a query finds. Raises as `run`, also later: what is read takes the place of what waits."""
        with _told():
            yield from self._connection.execute(statement, values)

    def run_many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Execute one statement for each row. Raises as `run`."""
        with _told():
            self._connection.executemany(statement, rows)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _failed(error) from None


def _failed(error: sqlite3.Error) -> NoRoomError:
    # As SQLite chooses it; gettempdir() names another one when that is full.
    where = os.environ.get("SQLITE_TMPDIR") or os.environ.get("TMPDIR") or "/var/tmp"
    return NoRoomError(
        f"what is to be changed cannot be written down in {where}: {error}; nothing was changed",
        hint="free some space there, or set TMPDIR to a directory on another disk",
    )
