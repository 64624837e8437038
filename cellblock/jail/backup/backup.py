# SPDX-License-Identifier: Apache-2.0
"""Stores a volume in a restic repository while jobs run on it (`jail backup`).

A snapshot has `root/`; of `.cellblock` the state, manifest, databases and history, so that the restored
volume can be upgraded and rolled back; and a list of the tree (`listing`). Locks and folders of unfinished
writers are left out. The writer's lock is held meanwhile, so no upgrade runs. Jobs do run, so files may be of
different moments. A killed run leaves no snapshot; the same command reuses what it had stored.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events, Progress
from cellblock.files import durable
from cellblock.jail.apply import transaction
from cellblock.jail.apply.transaction_runner import open_volume
from cellblock.jail.backup import listing, nosymfollow
from cellblock.jail.backup.repository import Repository
from cellblock.jail.backup.restic import HOST, TAG, Restic, ResticError, Snapshot, pattern
from cellblock.jail.backup.retention import Keep, retain
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.walk import TooLong
from cellblock.jail.volume import last_backup
from cellblock.jail.volume.apt_lock import apt_locked
from cellblock.jail.volume.last_backup import FOLDER
from cellblock.jail.volume.volume import Volume, VolumeState

_TOO_LONG = re.compile(r"[Ff]ile name too long$")
_UNSAID = "restic does not say why"
"""restic 0.14 writes `{}` for some errors, that a file is gone when it is opened among them (seen)."""


@dataclass(frozen=True)
class BackupOptions:
    """`name`: of the volume's snapshots, kept from then on. `exclude`: paths as seen in the jail, restic's
    patterns. `init`: make the repository where there is none. `check`: have restic check it afterwards."""

    name: str | None = None
    keep: Keep = field(default_factory=Keep)
    exclude: tuple[str, ...] = ()
    init: bool = False
    check: bool = False


@dataclass(frozen=True)
class BackupResult:
    """The result. `added` is the repository's growth in bytes (with restic before 0.16: before compression).

    `vanished` were removed and `changed` written while the backup ran: the snapshot has each as it was at
    some moment. `unread` could not be read, and are not in it. `removed` counts old snapshots.
    """

    snapshot: str
    parent: str
    name: str
    files: int
    bytes: int
    added: int
    changed: tuple[str, ...]
    vanished: tuple[str, ...]
    unread: tuple[tuple[str, str], ...]
    removed: int
    seconds: float


def backup(path: Path, repository: Repository, events: Events, options: BackupOptions) -> BackupResult:
    """Make a snapshot of the volume at `path`.

    Raises CellblockError: no jail, another writer, no repository, a wrong password, ...; see `restic`.
    """
    started = time.monotonic()
    volume, state = open_volume(path)
    _refuse_inside(volume, repository)
    restic = Restic(repository)
    before = _look(restic, options, events)
    with volume.lock(f"jail backup {path} {repository}", events.info) as check:
        if transaction.pending(volume):
            # Half of each image. A pod that makes backups cannot finish it: docs/jail-kubernetes.md.
            raise CellblockError(
                f"an upgrade of {path} was interrupted; nothing was stored",
                hint="run the upgrade again: it finishes that; then the backup",
            )
        _warn_of_apt(volume, events)
        running = _Running(volume, volume.state() or state, restic, before, events, options)
        result = running.run()
        check()
        _note(volume, repository, result, events)
    removed = 0
    if not result.unread:
        with events.step(volume.path.name, "remove old snapshots"):
            removed = retain(restic, result.name, options.keep, events)
    if options.check:
        with events.step(volume.path.name, "check the repository"):
            restic.run("check")
    return BackupResult(**{**vars(result), "removed": removed, "seconds": time.monotonic() - started})


def _note(volume: Volume, repository: Repository, result: BackupResult, events: Events) -> None:
    """Have the volume remember its last backup, for `jail status`."""
    made = last_backup.LastBackup(
        result.snapshot,
        result.name,
        str(repository),
        last_backup.now(),
        result.files,
        result.bytes,
        len(result.unread),
    )
    try:
        last_backup.note(volume, made)
    except OSError as error:
        events.warning(f"the snapshot is made, but {volume.path} could not note it: {error}")


def _refuse_inside(volume: Volume, repository: Repository) -> None:
    """Refuse a repository inside the tree: it would be stored in itself, and lost with the jail."""
    place = Path(repository.location)
    if place.is_absolute():
        for inside in (volume.root, volume.private):
            if place.resolve().is_relative_to(inside.resolve()):
                raise CellblockError(
                    f"the repository {repository} lies inside the jail {volume.path}; nothing was stored",
                    hint="name a place outside the volume",
                )


def _look(restic: Restic, options: BackupOptions, events: Events) -> list[Snapshot]:
    """The snapshots there are, before minutes are spent; makes the repository where asked to."""
    try:
        return restic.snapshots()
    except ResticError as error:
        if error.kind != "absent" or not options.init:
            raise
        events.info(f"making a repository at {restic.repository}")
        restic.run("init")
        return []


def _warn_of_apt(volume: Volume, events: Events) -> None:
    try:
        with apt_locked(volume.root):
            pass
    except CellblockError:
        events.warning(
            "apt or dpkg is at work in the jail: the snapshot may hold a package that is half installed "
            "(`dpkg --configure -a` in the restored jail finishes it)"
        )


def volume_name(volume: Volume, wanted: str | None) -> str:
    """The name of the volume's snapshots: what is asked for, what it had, or a new one that no other has."""
    file = volume.private / FOLDER / "name"
    known = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    name = wanted or known or f"{volume.path.name}-{secrets.token_hex(3)}"
    if not name or "," in name or name != name.strip():
        raise UsageError(f"--name {name!r} cannot be a tag", hint="use letters, digits and dashes")
    if name != known:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        durable.write(file, name + "\n")
    return name


@dataclass(frozen=True)
class _Running:
    volume: Volume
    state: VolumeState
    restic: Restic
    before: list[Snapshot]
    events: Events
    options: BackupOptions

    def run(self) -> BackupResult:
        subject = self.volume.path.name
        name = volume_name(self.volume, self.options.name)
        # By its name alone: the folder that it is mounted at is another on another machine.
        parent = next((one.id for one in reversed(self.before) if one.name == name), "")
        with self.events.step(subject, "list the tree"):
            began_ns = self._list()
        summary: dict[str, Any] = {}
        failed: list[tuple[str, str]] = []
        with self.events.step(subject, "store"):
            try:
                done = self.restic.run(
                    *self._arguments(name, parent),
                    on_json=lambda record: self._read(record, summary, failed),
                    accept=(0, 3),
                    folder=self.volume.path,
                    keep_output=False,
                )
            except ResticError as error:
                raise CellblockError(f"{error.message}; no snapshot was made", hint=error.hint) from error
        if not summary.get("snapshot_id"):
            raise CellblockError(
                f"restic ended well and made no snapshot: {' '.join(done.tail)}", hint="run this again"
            )
        with self.events.step(subject, "look what changed meanwhile"):
            changed = tuple(map(os.fsdecode, listing.changed_since(os.fsencode(self.volume.root), began_ns)))
        vanished = tuple(item for item, why in failed if self._is_gone(item, why, began_ns))
        return BackupResult(
            snapshot=summary["snapshot_id"],
            parent=parent,
            name=name,
            files=summary["total_files_processed"],
            bytes=summary["total_bytes_processed"],
            added=summary.get("data_added_packed", summary["data_added"]),
            changed=changed,
            vanished=vanished,
            unread=tuple(one for one in failed if one[0] not in vanished),
            removed=0,
            seconds=0.0,
        )

    def _is_gone(self, item: str, why: str, began_ns: int) -> bool:
        """Whether a job removed or replaced the file, rather than that it cannot be read."""
        if re.search(r"[Nn]o such file|tale (NFS )?file handle", why):
            return True
        if why != _UNSAID:
            return False
        try:
            with TreeAccess(os.fsencode(self.volume.path)) as access:
                path = os.path.relpath(self.volume.path / item, self.volume.path)
                status = access.status(os.fsencode(path))
        except Blocked:
            return True
        return status is None or status.st_ctime_ns > began_ns

    def _list(self) -> int:
        """Write the list of the tree; returns when that began, in nanoseconds by the clock of the volume."""
        folder = self.volume.private / FOLDER
        # Space for one is enough: the last one's is in the snapshot that it was made for.
        path = folder / listing.NAME
        path.unlink(missing_ok=True)
        clock = folder / "clock"
        clock.write_bytes(b"")
        began_ns = clock.stat().st_ctime_ns
        clock.unlink()
        too_long = TooLong()
        try:
            listing.write(path, listing.read_tree(os.fsencode(self.volume.root), too_long))
        except OSError as error:
            path.unlink(missing_ok=True)
            self.events.warning(
                f"no list of the tree is in this snapshot ({error.strerror}: {error.filename or path}): "
                "a restore will not be compared, and sparse files take all their space"
            )
        if too_long.count:
            self.events.warning(str(too_long))
        return began_ns

    def _arguments(self, name: str, parent: str) -> list[str]:
        image = self.state.source.reference.replace(",", " ")
        arguments = ["backup", "--json", "--host", HOST]
        for tag in (TAG, f"volume:{name}", f"image:{image}"):
            arguments += ["--tag", tag]
        if parent:
            arguments += ["--parent", parent]
        root = pattern(str(self.volume.root))
        for excluded in (*listing.FETCHED_AGAIN, *self.options.exclude):
            arguments += ["--exclude", root + excluded if excluded.startswith("/") else excluded]
        return [*arguments, "root", *(f".cellblock/{one.name}" for one in self.volume.lasting())]

    def _read(self, record: dict[str, Any], summary: dict[str, Any], failed: list[tuple[str, str]]) -> None:
        kind = record.get("message_type")
        if kind == "status" and record.get("total_bytes"):
            done, total = int(record.get("bytes_done", 0)), int(record["total_bytes"])
            self.events.emit(Progress(self.volume.path.name, done, total))
        elif kind == nosymfollow.MESSAGE:
            self.events.info(
                f"restic follows symbolic links here ({record.get('why')}): a user who puts one in the place "
                "of a directory while it runs may find files of this machine in the snapshot"
            )
        elif kind == "error":
            error = record["error"]
            why = str(error.get("message") or _errno(error.get("Err")) or _UNSAID)
            # The list of the tree has told of these. Users make them: no reason to keep old snapshots.
            if not _TOO_LONG.search(why):
                failed.append((str(record.get("item", "")), why))
        elif kind == "summary":
            summary.update(record)


def _errno(number: Any) -> str:
    """The words of an errno, which restic before 0.17 gives as a number."""
    with contextlib.suppress(TypeError, ValueError):
        return os.strerror(number)
    return ""
