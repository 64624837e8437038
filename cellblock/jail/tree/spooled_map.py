# SPDX-License-Identifier: Apache-2.0
"""Maps paths to values, in memory while they are few and in a temporary file when they are many."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from cellblock.errors import CellblockError
from cellblock.jail.tree.entry import order

KEPT = 20_000
"""How many differences and actions of an upgrade are in memory: each takes some kilobytes."""
_TOGETHER = 1000

_CACHE_KIB = 8192


class NoRoomError(CellblockError):
    """The disk for temporary files is full. It says nothing about the volume."""


class TemporaryDatabase:
    """An SQLite database in an unnamed file that ends with the process. It lies in TMPDIR, or in /var/tmp."""

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
        with _naming_the_disk():
            self._connection.execute(statement, values)

    def rows(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Iterate over the rows of a query. Raises as `run`: reading can write pages out."""
        with _naming_the_disk():
            yield from self._connection.execute(statement, values)

    def run_many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Execute one statement for each row. Raises as `run`."""
        with _naming_the_disk():
            self._connection.executemany(statement, rows)


@contextmanager
def _naming_the_disk() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise _failed(error) from None


def _failed(error: sqlite3.Error) -> NoRoomError:
    # As SQLite chooses it; gettempdir() names another one when that is full.
    where = os.environ.get("SQLITE_TMPDIR") or os.environ.get("TMPDIR") or "/var/tmp"
    return NoRoomError(
        f"the list of changes cannot be written to {where}: {error}; nothing was changed",
        hint="free some space there, or set TMPDIR to a directory on another disk",
    )


Value = TypeVar("Value")

_SCHEMA = "CREATE TABLE found (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID"


class PathsStore(Generic[Value]):
    """`pack` makes bytes of a value, `unpack` a value of them. All paths are told in `entry.order`."""

    def __init__(self, pack: Callable[[Value], bytes], unpack: Callable[[bytes], Value]) -> None:
        self._pack, self._unpack = pack, unpack
        self._recent: dict[bytes, Value] = {}
        self._database: TemporaryDatabase | None = None

    def __setitem__(self, path: bytes, value: Value) -> None:
        self._recent[path] = value
        if len(self._recent) > (KEPT if self._database is None else _TOGETHER):
            self._store()

    def get(self, path: bytes) -> Value | None:
        """The value of a path, None where it has none."""
        found = self._recent.get(path)
        if found is not None or self._database is None:
            return found
        row = next(self._database.rows("SELECT value FROM found WHERE key = ?", order(path)), None)
        return None if row is None else self._unpack(row[0])

    def __contains__(self, path: bytes) -> bool:
        return self.get(path) is not None

    def __len__(self) -> int:
        if self._database is None:
            return len(self._recent)
        self._store()
        count: int
        ((count,),) = self._database.rows("SELECT count(*) FROM found")
        return count

    def __bool__(self) -> bool:
        return bool(self._recent) or self._database is not None

    def items(self) -> Iterator[tuple[bytes, Value]]:
        """Iterate over all paths and values, in order. None may be added meanwhile."""
        if self._database is None:
            yield from sorted(self._recent.items(), key=lambda one: order(one[0]))
            return
        self._store()
        for key, value in self._database.rows("SELECT key, value FROM found ORDER BY key"):
            yield path_of(key), self._unpack(value)

    def _store(self) -> None:
        if self._database is None:
            self._database = TemporaryDatabase(_SCHEMA)
        rows = ((order(path), self._pack(value)) for path, value in self._recent.items())
        self._database.run_many("INSERT OR REPLACE INTO found VALUES (?, ?)", rows)
        self._recent.clear()


def path_of(key: bytes) -> bytes:
    """The path whose `entry.order` that is."""
    return key.replace(b"\0", b"/")
