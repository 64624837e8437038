"""A database of this process alone, in a file without a name: what does not fit in memory."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from typing import Any

from cellblock.errors import CellblockError

_CACHE_KIB = 8192


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

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Execute one statement. Raises CellblockError when the disk is full."""
        try:
            return self._connection.execute(statement, values)
        except sqlite3.OperationalError as error:
            raise _failed(error) from None

    def run_many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Execute one statement for each row. Raises CellblockError when the disk is full."""
        try:
            self._connection.executemany(statement, rows)
        except sqlite3.OperationalError as error:
            raise _failed(error) from None


def _failed(error: sqlite3.Error) -> CellblockError:
    return CellblockError(
        f"what is to be changed cannot be written down in {tempfile.gettempdir()} or /var/tmp: {error}; "
        "nothing was changed",
        hint="free some space there, or set TMPDIR to a directory on another disk",
    )
