# SPDX-License-Identifier: Apache-2.0
"""Reads the history of a volume: which transactions were carried out, and which a rollback can undo.

A transaction is one upgrade, rollback or repair. Old ones are removed here, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cellblock.errors import CellblockError, NewerFormatError
from cellblock.files import durable
from cellblock.jail.merge import change_plan
from cellblock.jail.merge.change_plan import Finding, Plan
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.tree.spooled_map import NoRoomError
from cellblock.jail.volume.volume import Volume

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
    skipped: tuple[tuple[str, str, str], ...]
    undone_by: int

    @property
    def can_be_undone(self) -> bool:
        """Whether it is something that a rollback undoes, and has not yet."""
        return self.operation != "rollback" and not self.undone_by

    def plan(self) -> Plan:
        """Read the plan that was carried out. Raises CellblockError when it has lost some of its actions."""
        plan = change_plan.read(self.folder / "plan")
        if len(plan.actions) != self.actions:
            raise CellblockError(
                f"{self.folder / 'plan'} has {len(plan.actions)} actions, and {self.actions} were carried out"
            )
        return plan

    def findings(self) -> tuple[Finding, ...]:
        """Read what stayed as users had it. Raises CellblockError when the record is damaged."""
        with whole(self.folder):
            return change_plan.read(self.folder / "plan", actions_too=False).findings

    def skipped_paths(self) -> frozenset[bytes]:
        """Return the paths that were left because users changed them meanwhile."""
        return frozenset(path.encode("utf-8", "surrogateescape") for _, path, _ in self.skipped)

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


@dataclass(frozen=True)
class Damaged:
    """A transaction of the past whose record cannot be read: `why`."""

    number: int
    why: CellblockError

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        return {"number": self.number, "error": self.why.message, "next": self.why.hint}


def read(volume: Volume) -> list[Done]:
    """List the transactions whose records can be read, the oldest first."""
    return [one for one in listed(volume) if isinstance(one, Done)]


def listed(volume: Volume) -> list[Done | Damaged]:
    """List all transactions, the oldest first."""
    found: list[Done | Damaged] = []
    for folder in _folders(volume):
        try:
            with whole(folder):
                found.append(_read(volume, folder))
        except NoRoomError:
            raise
        except CellblockError as error:
            found.append(Damaged(int(folder.name), error))
    return found


def kept_by_users(volume: Volume) -> tuple[set[bytes], list[Damaged]]:
    """Return the paths that upgrades left as users had them, and the upgrades whose record is damaged."""
    paths: set[bytes] = set()
    unknown = []
    for one in listed(volume):
        if isinstance(one, Damaged):
            unknown.append(one)
            continue
        try:
            paths.update(finding.path for finding in one.findings())
            paths.update(one.skipped_paths())
        except NoRoomError:
            raise
        except CellblockError as error:
            unknown.append(Damaged(one.number, error))
    return paths, unknown


def is_there(volume: Volume, number: int) -> bool:
    """Whether the record of a transaction is on the volume: a writer may have removed it meanwhile."""
    return (volume.private / "history" / f"{number:04d}").is_dir()


def _folders(volume: Volume) -> list[Path]:
    """Sort by number: after 9,999 the names have five digits."""
    names = (volume.private / "history").glob("[0-9]*")
    return sorted((path for path in names if path.name.isdecimal()), key=lambda path: int(path.name))


@contextmanager
def whole(folder: Path, *, is_needed: bool = True) -> Iterator[None]:
    """Turn errors in the block into one that says that the record in `folder` is damaged.

    `is_needed`: a rollback may still have to read it.
    """
    try:
        yield
    except (NoRoomError, NewerFormatError):
        raise
    except (CellblockError, FileNotFoundError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = error.message if isinstance(error, CellblockError) else str(error)
        aside = folder.parent.parent / f"damaged-{folder.name}"
        lost = "that one cannot be undone" if is_needed else "it is not known what users kept then"
        raise CellblockError(
            f"{folder}, the record of an upgrade, is damaged, so {lost}: {why}; nothing was changed",
            hint=f"a backup has it (`jail restore VOLUME REPO`); or do without: mv {folder} {aside}",
        ) from error


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Put the file's name before what is wrong with it."""
    try:
        yield
    except KeyError as error:
        raise ValueError(f"{path} lacks {error}") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _report(volume: Volume, folder: Path) -> dict[str, Any]:
    path = folder / "finished.json"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text:
        with _naming(path):
            report: dict[str, Any] = json.loads(text)
            for key in ("operation", "source", "previous", "finished_at", "actions", "late"):
                report[key]
        return report
    # A power cut can leave it empty. The other records have all that it says.
    plan = change_plan.read(folder / "plan")
    # Not the time of `folder`, which a rollback changes by its note. The last action changed that of kept/.
    ends = (path,) if path.exists() else (folder / "plan", folder / "kept")
    ended = datetime.fromtimestamp(max(one.stat().st_mtime for one in ends), timezone.utc)
    return {
        "operation": plan.operation,
        "source": str(plan.source),
        "previous": str(volume.read_state(folder / "old").source),
        "finished_at": ended.isoformat(timespec="seconds"),
        "actions": len(plan.actions),
        "late": read_skipped(folder),
    }


def _read(volume: Volume, folder: Path) -> Done:
    report = _report(volume, folder)
    undone = folder / "undone-by"
    with _naming(undone):
        undone_by = int(undone.read_text()) if undone.exists() else 0
    return Done(
        folder,
        int(folder.name),
        report["operation"],
        report["source"],
        report["previous"],
        report["finished_at"],
        report["actions"],
        tuple(tuple(one) for one in report["late"]),
        undone_by,
    )


def mark_undone(volume: Volume, undone: int, by: int) -> None:
    """Note that transaction `by` undid the transaction `undone`; whole or not at all, and more than once."""
    folder = volume.private / "history" / f"{undone:04d}"
    if folder.exists():
        durable.write(folder / "undone-by", str(by))


def last_undoable(volume: Volume) -> Done | None:
    """The transaction that a rollback would undo. Raises CellblockError when its record is damaged."""
    for one in reversed(listed(volume)):
        if isinstance(one, Damaged):
            raise one.why
        if one.can_be_undone:
            return one
    return None


def undoable_since(volume: Volume, number: int) -> list[Done]:
    """Upgrades and repairs after that one that were not undone, the newest first.

    Raises CellblockError when undoing them does not lead to what the volume was after `number` (0: before
    all), or a record among them is damaged.
    """
    found = listed(volume)
    first = found[0].number if found else 1
    command = f"`jail history {volume.path}` lists what can be undone"
    if number < first - 1:
        raise CellblockError(
            f"the history of {volume.path} begins with number {first}: what was before {first} can be had, "
            "and nothing older; nothing was changed",
            hint=f"`jail rollback {volume.path} --to {first - 1}`; {command}",
        )
    if number != first - 1 and number not in {one.number for one in found}:
        raise CellblockError(f"{volume.path} has no number {number} in its history", hint=command)
    since: list[Done] = []
    for one in reversed(found):
        if isinstance(one, Damaged):
            if one.number > number:
                raise one.why
        elif one.number > number and one.can_be_undone:
            since.append(one)
        elif one.number > number and (older := _undone_before(one, number, found)):
            raise CellblockError(
                f"{older}, an upgrade, was undone by {one.number}, so no rollback leads to what "
                f"{volume.path} was after {number}; nothing was changed",
                hint=f"`jail upgrade IMAGE {volume.path}` brings it to any image, that one too",
            )
    return since


def _undone_before(one: Done, number: int, found: list[Done | Damaged]) -> int:
    """Return an upgrade up to `number` that the rollback `one` undid; 0 for none."""
    undoes = one.folder / "undoes"
    numbers = [int(text) for text in undoes.read_text().split()] if undoes.exists() else []
    repairs = {each.number for each in found if isinstance(each, Done) and each.operation == "repair"}
    return next((each for each in numbers if each <= number and each not in repairs), 0)


def upgrade_below_a_repair(volume: Volume, rollback: int) -> Done | None:
    """The upgrade that a rollback left in place because it undid a repair that came after it."""
    found = read(volume)
    if not any(one.operation == "repair" and one.undone_by == rollback for one in found):
        return None
    left = (one for one in reversed(found) if one.operation == "upgrade" and not one.undone_by)
    return next(left, None)


def _spent(volume: Volume) -> set[int]:
    """The transactions that no rollback can undo: rollbacks, and what they undid."""
    try:
        known = read(volume)
    except CellblockError:
        return set()  # no room to read them: what was done is done, whatever the old ones are
    return {one.number for one in known if not one.can_be_undone}


def prune(volume: Volume, keep: int = KEEP) -> None:
    """Remove all but `keep` transactions: first those that no rollback can undo any more, then the oldest.

    So a rollback takes no earlier upgrade's files away, and all that are kept can be undone one after the
    other. Only the holder of the lock may.
    """
    folders = _folders(volume)
    excess = len(folders) - keep
    if excess <= 0:
        return
    # The newest stays in any case: the next one's number follows from it.
    *older, _ = folders
    spent = _spent(volume)
    for old in sorted(older, key=lambda folder: int(folder.name) not in spent)[:excess]:
        # Renamed first: a half-removed one is no part of history.
        target = volume.private / f"staging-forgotten-{old.name}"
        old.rename(target)
        with suppress(OSError):  # what users write to at this moment: the next run removes it
            remove_tree(target)


def read_skipped(folder: Path) -> list[list[str]]:
    """Read which files the transaction in `folder` skipped: kind, path and reason of each."""
    try:
        lines = (folder / "late").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):  # a line that was being written when a run was killed
            found.append(json.loads(line))
    return found
