"""Carries out a plan so that a crash at any moment leaves a tree that the same steps finish.

    .cellblock/preparing-PID-RANDOM/   everything is made here first; a crash loses only this
    .cellblock/transaction/            the same folder, renamed: from here on it is carried out to the end
    .cellblock/history/NUMBER/         the same folder again, when it is done

In it: `plan` (the actions, in order), `new/N` (the new file of action N), `kept/N` (the file that action N
took away), what becomes of the volume's records (`next/`), and what they were (`old/`).

Each action can be done twice: whether it was done shows in the tree and in new/ and kept/. No action
overwrites what it did not expect: a file that users changed after the plan was made stays.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail.change_plan import Action, Finding, Plan
from cellblock.jail.entry import KINDS, Entry, shown
from cellblock.jail.losses import NAME as LOSSES
from cellblock.jail.losses import Without
from cellblock.jail.metadata import set_metadata
from cellblock.jail.rename_exchange import exchange
from cellblock.jail.tree_access import Blocked, Stamp, TreeAccess
from cellblock.jail.volume import Volume, sync_directory, sync_filesystem

RECORDS = ("manifest", "controls", "state.json")
"""Files of `.cellblock` that a transaction replaces, the one that says what the volume holds last."""


_MOVED = {
    errno.ENOENT: "its directory was removed meanwhile",
    errno.ENOTDIR: "users put something else there meanwhile",
    errno.EISDIR: "users put something else there meanwhile",
    errno.EEXIST: "users made it meanwhile",
    errno.ENOTEMPTY: "users made it meanwhile",
    errno.ELOOP: "users put a link there meanwhile",
    errno.EBUSY: "something is mounted there",
    errno.EXDEV: "it is on another filesystem, mounted here",
}
"""What a step fails with when users move what it is about between its look and its deed; never ours."""


class MovedError(Exception):
    """The tree is not what the plan expects at this path."""


@dataclass
class Transaction:
    """The transaction in `folder` of a volume."""

    volume: Volume
    folder: Path
    late: list[Finding] = field(default_factory=list)
    """What users changed between the plan and its execution; it stays as they have it."""

    def commit(self) -> None:
        """From here on this is carried out, by whoever comes next if not by us."""
        sync_filesystem(self.volume.path)
        target = self.volume.private / "transaction"
        self.folder.rename(target)
        sync_directory(self.volume.private)
        self.folder = target

    def run(self, plan: Plan, check: Callable[[], None], progress: Callable[[int, int], None]) -> None:
        """Do all actions of the `plan` that is written down here.

        `check` raises when this must not go on: another writer has taken over.
        """
        new, kept = (_opened(self.folder / name) for name in ("new", "kept"))
        try:
            further = self.folder / "next"
            without = Without.of(further if (further / LOSSES).exists() else self.volume.private)
            with TreeAccess(os.fsencode(self.volume.root)) as access:
                for number, action in enumerate(plan.actions):
                    check()
                    self._do(_Step(access, new, kept, number, action, without))
                    progress(number + 1, len(plan.actions))
        finally:
            os.close(new)
            os.close(kept)

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
        report = {**finished, "late": self._all_late()}
        (self.folder / "finished.json").write_text(json.dumps(report) + "\n", encoding="utf-8")
        target = self.volume.private / "history" / self.number()
        target.parent.mkdir(exist_ok=True, mode=0o700)
        self.folder.rename(target)
        sync_directory(target.parent)
        sync_directory(self.volume.private)
        # Empty by now. Only here: an interrupted run looks into it to see what is done.
        shutil.rmtree(os.fsencode(target / "new"), ignore_errors=True)
        return target

    def _all_late(self) -> list[list[str]]:
        try:
            lines = (self.folder / "late").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # a line that was being written when a run was killed
                found.append(json.loads(line))
        return found

    def number(self) -> str:
        """The name that this has, or gets, in history."""
        taken = [int(path.name) for path in (self.volume.private / "history").glob("[0-9]*")]
        return f"{max(taken, default=0) + 1:04d}"

    def _do(self, step: _Step) -> None:
        try:
            getattr(step, step.action.verb)()
        except (MovedError, Blocked) as error:
            self._leave(
                step, str(error) if isinstance(error, MovedError) else "its directory is none any more"
            )
        except OSError as error:
            if error.errno in _MOVED:
                self._leave(step, _MOVED[error.errno])
            elif error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise CellblockError(
                    f"{self.volume.path} is full; the {step.action.verb} of "
                    f"{shown(step.action.path)} and what follows are still to be done",
                    hint="free some space, then run the same command again: it goes on where this stopped",
                ) from error
            elif error.errno == errno.EPERM and step.access.is_immutable(step.action.path):
                # Root outside did that: jobs may not. No reason to stop half-way.
                self._leave(step, "it is immutable, or its directory is (lsattr, chattr -i)")
            else:
                raise CellblockError(
                    f"{self.volume.path}: the {step.action.verb} of {shown(step.action.path)} failed: "
                    f"{error.strerror}; it and what follows are still to be done",
                    hint="see to that file, then run the same command again: it goes on where this stopped",
                ) from error

    def _leave(self, step: _Step, why: str) -> None:
        finding = Finding("conflict", step.action.path, why)
        self.late.append(finding)
        # An interrupted run's findings are to be in the report of the one that finishes.
        with (self.folder / "late").open("a", encoding="utf-8") as file:
            file.write(json.dumps([finding.kind, os.fsdecode(finding.path), finding.why]) + "\n")


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


@dataclass
class _Step:
    """One action; each method is a verb and can be called again after it was interrupted anywhere."""

    access: TreeAccess
    new: int
    kept: int
    number: int
    action: Action
    without: Without

    @property
    def _name(self) -> bytes:
        return b"%d" % self.number

    def _inside(self, folder: int) -> os.stat_result | None:
        try:
            return os.stat(self._name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def mkdir(self) -> None:
        if self._inside(self.new) is None:
            return
        status = self.access.status(self.action.path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            os.rmdir(self._name, dir_fd=self.new)  # users made one: theirs
            return
        if status is not None:
            self._check(status)
            parent, name = self.access.at(self.action.path)
            os.rename(name, self._name, src_dir_fd=parent, dst_dir_fd=self.kept)
            self._check_kept()
        parent, name = self.access.at(self.action.path)
        os.rename(self._name, name, src_dir_fd=self.new, dst_dir_fd=parent)

    def put(self) -> None:
        waiting = self._inside(self.new)
        if waiting is None:
            return
        before = self.action.before
        if before is None or before.kind == "d":
            self._put_new(waiting)
        else:
            self._replace(waiting)

    def _put_new(self, waiting: os.stat_result) -> None:
        status = self.access.status(self.action.path)
        if status is not None and self.action.before is not None and stat.S_ISDIR(status.st_mode):
            self.rmdir()  # what was in it was removed before; what users have in it keeps it there
            status = None
        if status is not None and status.st_ino != waiting.st_ino:
            os.unlink(self._name, dir_fd=self.new)
            raise MovedError("users made it meanwhile")
        if status is None:
            parent, name = self.access.at(self.action.path)
            try:
                os.link(self._name, name, src_dir_fd=self.new, dst_dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                raise MovedError("its directory was removed meanwhile") from None
        os.unlink(self._name, dir_fd=self.new)

    def _replace(self, waiting: os.stat_result) -> None:
        kept = self._inside(self.kept)
        if kept is not None and kept.st_ino == waiting.st_ino:
            os.unlink(self._name, dir_fd=self.new)  # they were swapped before an interruption
            return
        status = self.access.status(self.action.path)
        if status is None:
            os.unlink(self._name, dir_fd=self.new)
            raise MovedError("users removed it meanwhile")
        parent, name = self.access.at(self.action.path)
        if kept is None or kept.st_ino != status.st_ino:
            if kept is not None:
                raise self._given_up("users replaced it meanwhile")
            try:
                self._check(status)
            except MovedError as error:
                raise self._given_up(str(error)) from None
            os.link(name, self._name, src_dir_fd=parent, dst_dir_fd=self.kept, follow_symlinks=False)
        if exchange(self.new, self._name, parent, name):
            out, kept = self._inside(self.new), self._inside(self.kept)
            if out is None or kept is None or out.st_ino != kept.st_ino:
                # In between somebody put another file there. It was not lost: give it back its place.
                exchange(self.new, self._name, parent, name)
                raise self._given_up("users replaced it meanwhile")
            if not self._is_expected(kept):
                exchange(self.new, self._name, parent, name)
                raise self._given_up("users changed it meanwhile")
            os.unlink(self._name, dir_fd=self.new)
        else:
            os.rename(self._name, name, src_dir_fd=self.new, dst_dir_fd=parent)

    def _given_up(self, why: str) -> MovedError:
        os.unlink(self._name, dir_fd=self.new)
        return MovedError(why)

    def metadata(self) -> None:
        try:
            pinned = self.access.pinned(self.action.path)
        except FileNotFoundError:
            raise MovedError("users removed it meanwhile") from None
        try:
            self._set_metadata(pinned)
        finally:
            os.close(pinned)

    def _set_metadata(self, pinned: int) -> None:
        before, after, stamp = self.action.before, self.action.after, self.action.stamp
        assert after is not None
        status = os.fstat(pinned)
        if (
            stamp is None
            or status.st_ino != stamp.inode
            or KINDS.get(stat.S_IFMT(status.st_mode)) != after.kind
        ):
            raise MovedError("users replaced it meanwhile")
        if after.kind == "d":
            # Its time is users' business; setting owner and mode does not touch it.
            after = after._replace(mtime_ns=status.st_mtime_ns)
        elif status.st_size != stamp.size:
            raise MovedError("users changed it meanwhile")
        path = b"/proc/self/fd/%d" % pinned
        had, has = dict(before.xattrs if before else ()), dict(after.xattrs)
        for name in os.listxattr(path):
            if os.fsencode(name) in had and os.fsencode(name) not in has:
                os.removexattr(path, name)
        set_metadata(pinned, after, self.without)

    def remove(self) -> None:
        status = self.access.status(self.action.path)
        if status is None:
            return
        if self._inside(self.kept) is not None:
            raise MovedError("users made it anew meanwhile")
        self._check(status)
        parent, name = self.access.at(self.action.path)
        os.rename(name, self._name, src_dir_fd=parent, dst_dir_fd=self.kept)
        self._check_kept()

    def rmdir(self) -> None:
        status = self.access.status(self.action.path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return
        self.access.forget()
        parent, name = self.access.at(self.action.path)
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise MovedError("users have files in it") from None
            if error.errno == errno.EBUSY:
                raise MovedError("something is mounted there") from None
            raise

    def _check(self, status: os.stat_result) -> None:
        if not self._is_expected(status):
            raise MovedError("users changed it meanwhile")

    def _is_expected(self, status: os.stat_result) -> bool:
        stamp, before = self.action.stamp, self.action.before
        assert stamp is not None
        assert before is not None
        now = Stamp.of(status)
        # Not the change time: giving the file a second name in kept/ changes it, as does replacing another
        # of its names.
        return (now.inode, now.size, now.mtime_ns) == (stamp.inode, stamp.size, stamp.mtime_ns) and (
            stat.S_IMODE(status.st_mode),
            status.st_uid,
            status.st_gid,
        ) == (before.mode, before.uid, before.gid)

    def _check_kept(self) -> None:
        """After a rename to kept/: was it the file that was meant? If not, give it back its place."""
        kept = self._inside(self.kept)
        if kept is None or self._is_expected(kept):
            return
        parent, name = self.access.at(self.action.path)
        if stat.S_ISDIR(kept.st_mode):  # one of theirs, with their files: it has no second name
            os.rename(self._name, name, src_dir_fd=self.kept, dst_dir_fd=parent)
        else:
            os.link(self._name, name, src_dir_fd=self.kept, dst_dir_fd=parent, follow_symlinks=False)
            os.unlink(self._name, dir_fd=self.kept)
        raise MovedError("users changed it meanwhile")


def pending(volume: Volume) -> Transaction | None:
    """A transaction that was interrupted after its commit."""
    folder = volume.private / "transaction"
    return Transaction(volume, folder) if folder.is_dir() else None


def kept_file(folder: Path, number: int) -> Path:
    """Where the transaction in `folder` keeps what action `number` took away."""
    return folder / "kept" / str(number)


__all__ = ["RECORDS", "Entry", "Transaction", "kept_file", "pending"]
