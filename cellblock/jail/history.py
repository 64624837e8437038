"""What was done to a volume, and what a rollback would need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellblock.errors import CellblockError
from cellblock.jail import change_plan
from cellblock.jail.change_plan import Finding, Plan
from cellblock.jail.removal import remove_tree
from cellblock.jail.temporary_database import NoRoomError
from cellblock.jail.volume import Volume

KEEP = 5
"""How many transactions stay on the volume unless asked otherwise: each holds the files it replaced."""


@dataclass(frozen=True)
class Done:
    """One transaction of the past. `number` counts from 1; `undone_by` is that of the rollback, or 0."""

    folder: Path
    number: int
    operation: str
    source: str
    previous: str
    finished_at: str
    actions: int
    late: tuple[tuple[str, str, str], ...]
    undone_by: int

    def plan(self) -> Plan:
        """What was done, in order."""
        return change_plan.read(self.folder / "plan")

    def findings(self) -> tuple[Finding, ...]:
        """What stayed as users had it. Raises CellblockError when that is damaged."""
        with whole(self.folder):
            return change_plan.read(self.folder / "plan", actions_too=False).findings

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "number": self.number,
            "operation": self.operation,
            "source": self.source,
            "previous": self.previous,
            "finished_at": self.finished_at,
            "actions": self.actions,
            "undone_by": self.undone_by,
        }


def read(volume: Volume) -> list[Done]:
    """All of them, the oldest first. Raises CellblockError when one is damaged."""
    found = []
    for folder in _folders(volume):
        with whole(folder):
            found.append(_read(folder))
    return found


def _folders(volume: Volume) -> list[Path]:
    return sorted((volume.private / "history").glob("[0-9]*"))


@contextmanager
def whole(folder: Path) -> Iterator[None]:
    """What fails in this block because the record in `folder` is not whole is said to be that."""
    try:
        yield
    except NoRoomError:
        raise
    except (CellblockError, FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = error.message if isinstance(error, CellblockError) else str(error)
        aside = folder.parent.parent / f"damaged-{folder.name}"
        raise CellblockError(
            f"{folder}, the record of an upgrade, is damaged, so that one cannot be undone: {why}; "
            "nothing was changed",
            hint=f"a backup has it (`jail restore`); or do without: mv {folder} {aside}",
        ) from error


def _read(folder: Path) -> Done:
    report = json.loads((folder / "finished.json").read_text(encoding="utf-8"))
    undone = folder / "undone-by"
    return Done(
        folder,
        int(folder.name),
        report["operation"],
        report["source"],
        report["previous"],
        report["finished_at"],
        report["actions"],
        tuple(tuple(one) for one in report["late"]),
        int(undone.read_text()) if undone.exists() else 0,
    )


def mark_undone(volume: Volume, undone: int, by: int) -> None:
    """Note that transaction `by` undid the transaction `undone`; whole or not at all, and more than once."""
    folder = volume.private / "history" / f"{undone:04d}"
    if folder.exists():
        temporary = folder / "undone-by.new"
        temporary.write_text(str(by))
        temporary.replace(folder / "undone-by")


def last_undoable(volume: Volume) -> Done | None:
    """The transaction that a rollback would undo."""
    done = [one for one in read(volume) if one.operation != "rollback" and not one.undone_by]
    return done[-1] if done else None


def prune(volume: Volume, keep: int = KEEP) -> None:
    """Forget all but the newest `keep`. Only the holder of the lock may."""
    for old in _folders(volume)[: -keep or None]:  # not read: an upgrade is done, whatever an old one is
        # Renamed first: a half-removed one is no part of history.
        target = volume.private / f"staging-forgotten-{old.name}"
        old.rename(target)
        with suppress(OSError):  # what users write to at this moment: the next run removes it
            remove_tree(target)
