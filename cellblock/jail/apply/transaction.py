# SPDX-License-Identifier: Apache-2.0
"""Carries out an upgrade plan so that after a crash at any moment the same steps finish it.

    .cellblock/preparing-PID-RANDOM/   everything is made here first; a crash loses only this
    .cellblock/transaction/            the same folder, renamed: from here on it is carried out to the end
    .cellblock/history/NUMBER/         the same folder again, when it is done

The folder holds `plan` (the actions, in order), `new/N` (the new file of action N), `kept/N` (the file that
action N replaced or removed), `next/` and `old/` (the volume's records after and before). `theirs/` holds
files of users that could not be moved back to their place (`step`).

Each action can be repeated: the tree, new/ and kept/ show whether it was done. No action overwrites a file
that the plan did not expect: a file that users changed after the plan was made stays. transaction_runner.py
locks the volume and stages the files before this.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.files.durable import put, sync_directory
from cellblock.jail.apply.step import MOVED, MovedError, Step, StepFolders
from cellblock.jail.merge.change_plan import Finding, Plan
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.entry import shown
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.tree.unsupported import NAME as LOSSES
from cellblock.jail.tree.unsupported import UnsupportedMetadata
from cellblock.jail.volume.history import read_skipped
from cellblock.jail.volume.volume import Volume, sync_filesystem

RECORDS = ("manifest", "controls", "state.json")
"""Files of `.cellblock` that a transaction replaces, the one that says what the volume holds last."""


@dataclass
class Transaction:
    """The transaction in `folder` of a volume."""

    volume: Volume
    folder: Path
    skipped: list[Finding] = field(default_factory=list)
    """Files that users changed between the plan and its execution. They stay as users have them."""

    def commit(self, check: Callable[[], None]) -> None:
        """Commit: from here on this is carried out, by this run or the next. `check`: as in `run`."""
        sync_filesystem(self.volume.path)
        check()  # the flush may have taken minutes
        target = self.volume.private / "transaction"
        self.folder.rename(target)
        sync_directory(self.volume.private)
        self.folder = target

    def run(self, plan: Plan, check: Callable[[], None], progress: Callable[[int, int], None]) -> None:
        """Do all actions of the `plan` that is written down here.

        `check` raises when this must not go on: another writer has taken over.
        """
        folders = StepFolders(*(_opened(self.folder / name) for name in ("", "new", "kept")))
        try:
            further = self.folder / "next"
            unsupported = UnsupportedMetadata.of(
                further if (further / LOSSES).exists() else self.volume.private
            )
            with TreeAccess(os.fsencode(self.volume.root)) as access:
                for number, action in enumerate(plan.actions):
                    check()
                    self._do(Step(access, folders, number, action, unsupported))
                    progress(number + 1, len(plan.actions))
        finally:
            for folder in folders:
                os.close(folder)

    def finish(self, finished: dict[str, object]) -> Path:
        """Put the records in place and move the folder to history; returns where it is now."""
        sync_filesystem(self.volume.path)
        for name in (LOSSES, *RECORDS):
            source = self.folder / "next" / name
            if source.exists():
                temporary = self.volume.private / f"{name}.new"
                temporary.unlink(missing_ok=True)
                os.link(source, temporary)
                temporary.replace(self.volume.private / name)
                # rename(2) does nothing when both are names of one file: an interrupted run came this far.
                temporary.unlink(missing_ok=True)
        report = {**finished, "late": read_skipped(self.folder)}
        put(self.folder / "finished.json", json.dumps(report) + "\n")
        sync_directory(self.folder)
        target = self.volume.private / "history" / self.number()
        target.parent.mkdir(exist_ok=True, mode=0o700)
        self.folder.rename(target)
        sync_directory(target.parent)
        sync_directory(self.volume.private)
        # Empty by now. Only here: an interrupted run looks into it to see what is done.
        with contextlib.suppress(OSError):
            remove_tree(target / "new")
        return target

    def number(self) -> str:
        """The name that this has, or gets, in history."""
        taken = [int(path.name) for path in (self.volume.private / "history").glob("[0-9]*")]
        return f"{max(taken, default=0) + 1:04d}"

    def _do(self, step: Step) -> None:
        try:
            getattr(step, step.action.verb)()
        except MovedError as error:
            self._leave(step, str(error))
        except Blocked as error:
            self._leave(step, f"{shown(error.path)} is no directory any more")
        except OSError as error:
            if error.errno in MOVED:
                self._leave(step, MOVED[error.errno])
            elif error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise CellblockError(
                    f"{self.volume.path} is full; the {step.action.verb} of "
                    f"{shown(step.action.path)} and what follows are still to be done",
                    hint="free some space, then run the same command again: it goes on where this stopped",
                ) from error
            elif error.errno == errno.EPERM and step.access.is_immutable(step.action.path):
                # Root outside did that: jobs may not. No reason to stop half-way.
                step.give_up()
                self._leave(step, "it is immutable, or its directory is (lsattr, chattr -i)")
            else:
                raise CellblockError(
                    f"{self.volume.path}: the {step.action.verb} of {shown(step.action.path)} failed: "
                    f"{error.strerror}; it and what follows are still to be done",
                    hint="see to that file, then run the same command again: it goes on where this stopped",
                ) from error

    def _leave(self, step: Step, why: str) -> None:
        finding = Finding("conflict", step.action.path, why)
        self.skipped.append(finding)
        # An interrupted run's findings are to be in the report of the one that finishes.
        with (self.folder / "late").open("a", encoding="utf-8") as file:
            file.write(json.dumps([finding.kind, os.fsdecode(finding.path), finding.why]) + "\n")


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def pending(volume: Volume) -> Transaction | None:
    """Return the transaction that was interrupted after its commit, if there is one."""
    folder = volume.private / "transaction"
    return Transaction(volume, folder) if folder.is_dir() else None
