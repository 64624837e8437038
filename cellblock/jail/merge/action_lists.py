# SPDX-License-Identifier: Apache-2.0
"""Holds the actions of an upgrade plan in memory, or in a temporary file when there are many.

It also sorts them and finds them by path. change_plan.py writes the whole plan to a file to keep.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from cellblock.jail.merge.action import Action
from cellblock.jail.merge.action_order import GONE_FOLDER, LIBRARY, PROGRAM, in_order, rank
from cellblock.jail.tree import spooled_map
from cellblock.jail.tree.access import Stamp
from cellblock.jail.tree.entry import Entry, order
from cellblock.jail.tree.spooled_map import PathsStore, TemporaryDatabase

_TOGETHER = 1000
_SCHEMA = """CREATE TABLE actions
    (number INTEGER PRIMARY KEY, step INTEGER, key BLOB, digest TEXT, data BLOB)"""
_STEP = f"CASE WHEN :downgrade AND step = {LIBRARY} THEN {2 * PROGRAM + 1} ELSE 2 * step END"


class StoredActions(Sequence[Action]):
    """Actions in a file without a name; they are read again each time that they are asked for."""

    def __init__(self) -> None:
        self._database = TemporaryDatabase(_SCHEMA)
        self._count = 0
        self._indexed = False
        self._contents: PathsStore[int] | None = None

    def add(self, actions: Iterable[Action]) -> None:
        """Add some behind all others."""
        rows = [(self._count + at, *_row(action)) for at, action in enumerate(actions)]
        self._database.run_many("INSERT INTO actions VALUES (?, ?, ?, ?, ?)", rows)
        self._count += len(rows)

    def put(self, number: int, action: Action) -> None:
        """Replace the action with this number by another."""
        statement = "UPDATE actions SET step = ?, key = ?, digest = ?, data = ? WHERE number = ?"
        self._database.run(statement, *_row(action), number)

    def sort(self, *, downgrade: bool) -> StoredActions:
        """Return the actions in the order of `action_order.in_order`."""
        found = StoredActions()
        for which, how in (("<", "key, number"), ("=", "key DESC, number DESC"), (">", "key, number")):
            rows = self._database.rows(
                f"SELECT step, key, digest, data FROM actions WHERE step {which} {GONE_FOLDER} "
                f"ORDER BY {_STEP.replace(':downgrade', str(int(downgrade)))}, {how}"
            )
            found._database.run_many(
                "INSERT INTO actions VALUES (?, ?, ?, ?, ?)",
                ((number, *row) for number, row in enumerate(rows, found._count)),
            )
            ((found._count,),) = found._database.rows("SELECT count(*) FROM actions")
        return found

    def of_step(self, step: int) -> list[tuple[int, Action]]:
        """Return the actions of one step, with their numbers."""
        found = self._database.rows("SELECT number, data FROM actions WHERE step = ? ORDER BY number", step)
        return [(number, _action(data)) for number, data in found]

    def by_path(self) -> Iterator[Action]:
        """Iterate over the actions in the order of a sorted walk."""
        for (data,) in self._database.rows("SELECT data FROM actions ORDER BY key, number"):
            yield _action(data)

    def number_of(self, path: bytes) -> int | None:
        """Return the number of the last action with this path."""
        if not self._indexed:
            self._database.run("CREATE INDEX by_key ON actions (key)")
            self._indexed = True
        number: int | None
        ((number,),) = self._database.rows("SELECT max(number) FROM actions WHERE key = ?", order(path))
        return number

    def last_with(self, digest: str) -> int | None:
        """Return the number of the last action that removes or replaces a file with this content."""
        if self._contents is None:
            self._contents = PathsStore[int](lambda number: b"%d" % number, int)
            for number, action in enumerate(self):
                if _takes_content(action) and action.before is not None:
                    self._contents[action.before.digest.encode()] = number + 1
        found = self._contents.get(digest.encode())
        return None if found is None else found - 1

    def last_of_shared(self) -> dict[str, int]:
        """Digest -> number of the last action that needs it, for content that several new files share."""
        return dict(
            self._database.rows(
                "SELECT digest, max(number) FROM actions WHERE digest != '' "
                "GROUP BY digest HAVING count(*) > 1"
            )
        )

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Action]:
        for (data,) in self._database.rows("SELECT data FROM actions ORDER BY number"):
            yield _action(data)

    @overload
    def __getitem__(self, index: int) -> Action: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Action]: ...
    def __getitem__(self, index: int | slice) -> Action | Sequence[Action]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._count))]
        number = range(self._count)[index]
        ((data,),) = self._database.rows("SELECT data FROM actions WHERE number = ?", number)
        return _action(data)


class ActionList:
    """Collects the actions of a plan, and returns them as they came or in order."""

    def __init__(self) -> None:
        self._few: list[Action] = []
        self._many: StoredActions | None = None

    def append(self, action: Action) -> None:
        """Add one."""
        self._few.append(action)
        if len(self._few) >= (spooled_map.KEPT if self._many is None else _TOGETHER):
            self._store()

    def puts(self, wanted: set[bytes]) -> dict[bytes, tuple[int, Action]]:
        """The last `put` of each of the paths that has one, and its number."""
        actions = enumerate(self.all())
        return {one.path: (at, one) for at, one in actions if one.verb == "put" and one.path in wanted}

    def put(self, number: int, action: Action) -> None:
        """Replace the action with this number by another."""
        if self._many is None:
            self._few[number] = action
        else:
            self._store()
            self._many.put(number, action)

    def keep(self, wanted: Callable[[Action], bool]) -> None:
        """Drop the actions that are not wanted."""
        left = ActionList()
        for action in self.all():
            if wanted(action):
                left.append(action)
        self._few, self._many = left._few, left._many

    def all(self) -> Sequence[Action]:
        """Return the actions in the order in which they were appended."""
        if self._many is None:
            return tuple(self._few)
        self._store()
        return self._many

    def sort(self, *, downgrade: bool) -> Sequence[Action]:
        """Return the actions in the order in which they are carried out."""
        actions = self.all()
        if isinstance(actions, StoredActions):
            return actions.sort(downgrade=downgrade)
        return tuple(in_order(actions, downgrade=downgrade))

    def _store(self) -> None:
        if self._many is None:
            self._many = StoredActions()
        self._many.add(self._few)
        self._few.clear()


def by_path(actions: Sequence[Action]) -> Iterator[Action]:
    """Iterate over the actions in the order of a sorted walk."""
    if isinstance(actions, StoredActions):
        return actions.by_path()
    return iter(sorted(actions, key=lambda action: order(action.path)))


class ActionIndex:
    """Finds the number of the action that removed or replaced a path or a content."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self._actions = actions
        self._paths: dict[bytes, int] = {}
        self._contents: dict[str, int] = {}
        if isinstance(actions, StoredActions):
            return
        self._paths = {action.path: number for number, action in enumerate(actions)}
        self._contents = {
            action.before.digest: self._paths[action.path]
            for action in actions
            if _takes_content(action) and action.before is not None
        }

    def of_path(self, path: bytes) -> int | None:
        """Return the number of the last action with this path."""
        if isinstance(self._actions, StoredActions):
            return self._actions.number_of(path)
        return self._paths.get(path)

    def of_taken(self, path: bytes) -> int | None:
        """Return the number of the last action with this path, if it removes or replaces a file."""
        number = self.of_path(path)
        if number is None:
            return None
        action = self._actions[number]
        return number if action.before is not None and _takes_content(action) else None

    def of_content(self, digest: str) -> int | None:
        """Return the number of the last action that removes or replaces a file with this content."""
        if isinstance(self._actions, StoredActions):
            return self._actions.last_with(digest)
        return self._contents.get(digest)


def _takes_content(action: Action) -> bool:
    """Whether a file goes: what only gets another owner or mode is not kept."""
    return action.verb != "metadata" and action.before is not None and action.before.kind == "f"


def last_of_shared(actions: Sequence[Action]) -> dict[str, int]:
    """Digest -> number of the last action that needs it, at least for content that new files share."""
    if isinstance(actions, StoredActions):
        return actions.last_of_shared()
    return {action.new_content: number for number, action in enumerate(actions) if action.new_content}


def kept(actions: Sequence[Action]) -> Sequence[Action]:
    """Make the actions immutable, as a plan holds them."""
    return actions if isinstance(actions, StoredActions) else tuple(actions)


def _row(action: Action) -> tuple[int, bytes, str, bytes]:
    data: tuple[Any, ...] = (
        action.verb,
        action.path,
        None if action.before is None else tuple(action.before),
        None if action.after is None else tuple(action.after),
        None if action.stamp is None else tuple(action.stamp),
        action.note,
        action.beside,
        action.link,
    )
    return rank(action), order(action.path), action.new_content, marshal.dumps(data)


def _action(data: bytes) -> Action:
    verb, path, before, after, stamp, note, beside, link = marshal.loads(data)
    return Action(
        verb,
        path,
        before and Entry._make(before),
        after and Entry._make(after),
        stamp and Stamp._make(stamp),
        note,
        beside,
        link,
    )
