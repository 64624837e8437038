"""Values by path, for any number of paths: few are in memory, many in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from cellblock.jail.tree.entry import order
from cellblock.jail.tree.temporary_database import TemporaryDatabase

KEPT = 20_000
"""How many differences and actions of an upgrade are in memory: each takes some kilobytes."""
_TOGETHER = 1000

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
        """All of them, in order. None may be added meanwhile."""
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
