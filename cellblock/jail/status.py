# SPDX-License-Identifier: Apache-2.0
"""Reports what a volume holds, who uses it, and what can be undone and restored (`jail status`).

It only reads, and a writer may be at work meanwhile: records are replaced by rename, so each is either the
old or the new one. What cannot be read is named, and the rest is reported all the same.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cellblock.errors import CellblockError
from cellblock.jail.apply import transaction
from cellblock.jail.tree.manifest import DAMAGED_HINT
from cellblock.jail.volume import history, last_backup, record_faults
from cellblock.jail.volume.holders import Mounts, Writer, mounts, writer
from cellblock.jail.volume.volume import RESTORE, Volume, VolumeState
from cellblock.privilege import require_root


@dataclass(frozen=True)
class Space:
    """Bytes and inodes of the volume's filesystem; no inodes where it does not count them."""

    free_bytes: int
    bytes: int
    free_inodes: int
    inodes: int


@dataclass(frozen=True)
class Status:
    """What `jail status` tells. `kept` are the upgrades of the past that are on the volume.

    `undoable` counts those of them that `jail rollback` can undo, one after the other. `unfinished`: an
    upgrade was begun and is not finished. `homes` are the folders in /home; None where it cannot be read.
    `problems` name a file and a next step each.
    """

    path: Path
    state: VolumeState | None
    writer: Writer | None
    mounts: Mounts
    unfinished: bool
    kept: tuple[history.Done | history.Damaged, ...]
    undoable: int
    backup: last_backup.LastBackup | None
    space: Space
    homes: tuple[str, ...] | None
    problems: tuple[CellblockError, ...]

    @property
    def last_change(self) -> history.Done | None:
        """The newest upgrade, repair or rollback whose record can be read."""
        return next((one for one in reversed(self.kept) if isinstance(one, history.Done)), None)

    def record(self) -> dict[str, Any]:
        """For `--json`."""
        state, last = self.state, self.last_change
        return {
            "volume": str(self.path),
            "source": asdict(state.source) if state else None,
            "since": state.assembled_at if state else None,
            "entries": state.entries if state else None,
            "bytes": state.bytes if state else None,
            "writer": asdict(self.writer) if self.writer else None,
            "unfinished": self.unfinished,
            "readers": asdict(self.mounts),
            "last_change": last.record() if last else None,
            "kept": [one.record() for one in self.kept],
            "undoable": self.undoable,
            "last_backup": asdict(self.backup) if self.backup else None,
            "space": asdict(self.space),
            "homes": None if self.homes is None else list(self.homes),
            "problems": [{"error": one.message, "next": one.hint} for one in self.problems],
        }


def status(path: Path) -> Status:
    """Look at the volume at `path`. Raises CellblockError when there is no jail there, nor a part of one."""
    require_root("the records of a jail are root's alone")
    volume = Volume(path.absolute())
    if not volume.path.is_dir():
        what = "is no directory" if volume.path.exists() else "does not exist"
        raise CellblockError(
            f"{path} {what}", hint="name the directory of a volume; `jail assemble SOURCE VOLUME` makes it"
        )
    problems: list[CellblockError] = []
    now = writer(volume)
    at_work = now is not None and now.alive is not False
    state = None
    # What a restore that runs has not put in place yet is not damaged.
    if not (at_work and (volume.private / RESTORE).exists()):
        with _noted(problems):
            state = volume.state()
    if state is None and not problems and not at_work:
        raise CellblockError(
            f"{path} holds no jail yet",
            hint="`jail assemble SOURCE VOLUME` makes one; `jail status VOLUME` shows it",
        )
    kept = [one for one in history.listed(volume) if history.is_there(volume, one.number)]
    faults_of = {
        number: why
        for number, why in record_faults.faults(volume, kept).items()
        if history.is_there(volume, number)
    }
    problems += faults_of.values()
    if state is not None and now is None:
        faults = list(_faults_of_manifest(volume, state))
        # A writer may have begun since.
        problems += faults if faults and writer(volume) is None and volume.state() == state else []
    backup = None
    with _noted(problems):
        backup = last_backup.read(volume)
    return Status(
        path=volume.path,
        state=state,
        writer=now,
        mounts=mounts(volume),
        unfinished=transaction.pending(volume) is not None,
        kept=tuple(kept),
        undoable=_undoable(kept, faults_of),
        backup=backup,
        space=_space(volume),
        homes=_homes(volume),
        problems=tuple(problems),
    )


@contextmanager
def _noted(problems: list[CellblockError]) -> Iterator[None]:
    try:
        yield
    except CellblockError as error:
        problems.append(error)


def _undoable(kept: list[history.Done | history.Damaged], damaged: Container[int]) -> int:
    """Rollbacks go backwards, and not past a record that they need and that is damaged."""
    count = 0
    for one in reversed(kept):
        if isinstance(one, history.Damaged):
            break
        if one.can_be_undone:
            if one.number in damaged:
                break
            count += 1
    return count


def _faults_of_manifest(volume: Volume, state: VolumeState) -> Iterator[CellblockError]:
    """Whether the manifest belongs to the state, by its last line alone: `verify` reads all of it."""
    path = volume.manifest
    try:
        words = record_faults.last_line(path).split()
    except OSError as error:
        yield CellblockError(f"{path}: cannot be read: {error}", hint=DAMAGED_HINT)
        return
    if len(words) != 3 or words[0] != b"end":
        yield CellblockError(f"{path}: is cut off: its last line is not its end", hint=DAMAGED_HINT)
    elif words[2].decode(errors="replace") != state.manifest_sha256:
        yield CellblockError(
            f"{path}: is of another tree than {volume.private / 'state.json'} says", hint=DAMAGED_HINT
        )


def _space(volume: Volume) -> Space:
    found = os.statvfs(volume.path)
    size = found.f_frsize
    return Space(found.f_bavail * size, found.f_blocks * size, found.f_favail, found.f_files)


def _homes(volume: Volume) -> tuple[str, ...] | None:
    """The folders in the jail's /home. No link is followed: its people can make one of /home."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        root = os.open(volume.root, flags)
        try:
            home = os.open("home", flags, dir_fd=root)
        finally:
            os.close(root)
        try:
            with os.scandir(home) as found:
                names = [one.name for one in found if stat.S_ISDIR(one.stat(follow_symlinks=False).st_mode)]
        finally:
            os.close(home)
    except OSError:
        return None
    return tuple(sorted(names))
