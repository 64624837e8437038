# SPDX-License-Identifier: Apache-2.0
"""Restores a whole volume from a restic repository (`jail restore`); one_path.py restores a single path.

The snapshot is restored into a staging folder on the volume, compared with the list of its backup and
repaired (`reconcile`), and only then put in place (`restore_commit`). A kill before that leaves the volume
as it was; after it, the same command finishes. Only one writer runs at a time.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.backup import listing, restore_commit
from cellblock.jail.backup.reconcile import Reconciled, reconcile
from cellblock.jail.backup.repository import Repository
from cellblock.jail.backup.restic import Restic, ResticError, Snapshot, pattern
from cellblock.jail.comparison import differing
from cellblock.jail.source.image import NOTE, release
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.volume import filesystem_capabilities
from cellblock.jail.volume.filesystem_capabilities import CONSEQUENCES
from cellblock.jail.volume.last_backup import FOLDER
from cellblock.jail.volume.volume import Volume
from cellblock.privilege import require_root

_OF_METADATA = r"operation not supported|not permitted|permission denied|not implemented|read-only"


@dataclass(frozen=True)
class RestoreOptions:
    """`snapshot`: an id, or the latest of the volume `name`. `replace`: also where there is a jail.
    `content`: have restic read everything again that it wrote."""

    snapshot: str = "latest"
    name: str | None = None
    replace: bool = False
    content: bool = True
    allow_lossy: bool = False


@dataclass(frozen=True)
class RestoreResult:
    """The result. `replaced` is the place of the previous tree. `mended` says how the tree
    compared; None: the snapshot has no list to compare with. `damaged` and `users` count what differs from
    the image's manifest, as `jail verify` sees it."""

    snapshot: Snapshot
    target: Path
    replaced: Path | None
    mended: Reconciled | None
    damaged: int
    users: int
    seconds: float


def restore(path: Path, repository: Repository, events: Events, options: RestoreOptions) -> RestoreResult:
    """Restore a snapshot to the volume at `path`, which holds no jail unless `options.replace`.

    Raises CellblockError; the volume is then as it was.
    """
    started = time.monotonic()
    as_root()
    volume = Volume(path.absolute())
    restic = Restic(repository)
    snapshot = choose(restic, options.snapshot, options.name)
    volume.prepare()
    with volume.lock(f"jail restore {path} {repository}", events.info) as check:
        decided = restore_commit.pending(volume)
        if decided:
            events.info("finishing the restore that was interrupted")
            kept = restore_commit.finish(volume)
            if decided.snapshot == snapshot.id:
                return RestoreResult(
                    snapshot, volume.root, kept, None, *_against_image(volume), time.monotonic() - started
                )
        if volume.is_assembled() and not options.replace:
            raise CellblockError(
                f"{path} holds a jail; nothing was changed",
                hint="restore to an empty volume; or --replace: what is there is kept beside it",
            )
        clean(volume, events)
        with staged(volume) as staging:
            work = Restoring(restic, snapshot, volume, staging, events, options)
            work.fetch("/.cellblock", "restore the records")
            _check_space(volume, staging)
            work.fetch("/root", "restore the tree")
            mended = work.reconcile(b"")
            _check_whole(staging, snapshot)
            with events.step(volume.path.name, "compare with the image"):
                damaged, users = _against_image(Volume(staging))
            restore_commit.decide(volume, staging, snapshot.id, check)
            kept = restore_commit.finish(volume)
    return RestoreResult(snapshot, volume.root, kept, mended, damaged, users, time.monotonic() - started)


def as_root() -> None:
    """Raise CellblockError unless we are root."""
    require_root("a jail keeps the owners of its files, which only root can set")


def choose(restic: Restic, wanted: str, name: str | None) -> Snapshot:
    """The snapshot that is asked for. Raises CellblockError naming what there is."""
    found = restic.snapshots(name)
    if not found:
        whose = f"of a volume {name} " if name else ""
        raise CellblockError(
            f"{restic.repository} has no snapshot {whose}that Cellblock made",
            hint="`jail backup VOLUME REPO --list`",
        )
    if wanted != "latest":
        matching = [one for one in found if one.id.startswith(wanted)]
        if len(matching) != 1:
            raise CellblockError(
                f"{restic.repository} has {len(matching)} snapshots {wanted}",
                hint="`jail backup VOLUME REPO --list`",
            )
        return matching[0]
    names = sorted({one.name for one in found})
    if len(names) > 1:
        raise CellblockError(
            f"{restic.repository} has snapshots of several volumes: {', '.join(names)}",
            hint="say which with --name, or give a --snapshot",
        )
    return found[-1]


def clean(volume: Volume, events: Events) -> None:
    """Remove what writers left that were killed. Needs the lock."""
    for leftover in volume.leftovers():
        events.info(f"removing what an interrupted run left in {leftover}")
        for note in leftover.glob(f"{NOTE}*"):
            release(note)
        remove_tree(leftover)


@contextmanager
def staged(volume: Volume) -> Iterator[Path]:
    """Make a staging folder on the volume; raise a clear error when the disk is full."""
    try:
        with volume.staging() as folder:
            yield folder
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(volume) from error
        where = os.fsdecode(error.filename) if error.filename else str(volume.path)
        raise CellblockError(
            f"cannot restore {volume.path}: {where}: {error.strerror or error}",
            hint="check that path and the filesystem, then run the same command again",
        ) from error


def _full(volume: Volume) -> CellblockError:
    return CellblockError(
        f"{volume.path} is full; what had been restored was removed, the volume is as it was",
        hint="free some space or use a larger volume, then run this again",
    )


@dataclass(frozen=True)
class Restoring:
    """Restores parts of one snapshot into the folder `staging`."""

    restic: Restic
    snapshot: Snapshot
    volume: Volume
    staging: Path
    events: Events
    options: RestoreOptions

    def fetch(self, path: str | bytes, step: str) -> None:
        """Restore the snapshot's `path` and what is below it. Raises CellblockError."""
        arguments = ["restore", self.snapshot.id, "--target", str(self.staging), "--include", pattern(path)]
        if self.options.content:
            arguments.append("--verify")
        if self.restic.can("restore", "--sparse"):
            arguments.append("--sparse")
        with self.events.step(self.volume.path.name, step):
            try:
                done = self.restic.run(*arguments, accept=(0, 1), keep_output=False)
            except ResticError as error:
                raise self._failed(error) from error
        errors = [line for line in done.tail if line.startswith("ignoring error") or "Fatal" in line]
        if done.status != 0:
            self._judge(done.tail, errors)

    def _judge(self, tail: tuple[str, ...], errors: list[str]) -> None:
        serious = [line for line in errors if not re.search(_OF_METADATA, line) and "There were" not in line]
        if serious or not errors or not self.options.allow_lossy:
            text = "\n".join(tail)
            if "no space left" in text or "quota exceeded" in text:
                raise _full(self.volume)
            lines = "".join(f"\n  | {line}" for line in (serious or list(tail))[:10])
            raise CellblockError(
                f"{self.snapshot.short} cannot be restored whole; the volume is as it was{lines}",
                hint="if the repository is damaged: `restic check`, and an older snapshot; if the volume "
                "cannot hold what it says: --allow-lossy",
            )

    def _failed(self, error: ResticError) -> CellblockError:
        if error.kind == "full":
            return _full(self.volume)
        return CellblockError(f"{error.message}; the volume is as it was", hint=error.hint)

    def reconcile(self, within: bytes) -> Reconciled | None:
        """Compare with the list of the snapshot and put right; None where there is no list."""
        list_file = self.staging / ".cellblock" / FOLDER / listing.NAME
        if not list_file.exists():
            self.events.warning(
                "the snapshot has no list of its tree: what was restored is not compared with it"
            )
            return None
        with self.events.step(self.volume.path.name, "compare with the snapshot"):
            mended = reconcile(
                list_file,
                self.staging / "root",
                lambda node: self.restic.listed(self.snapshot.id, node),
                within,
            )
        if mended.losses:
            shown = "".join(f"\n  | {loss}" for loss in mended.losses[:10])
            text = f"{len(mended.losses)} files are not as in the snapshot:{shown}"
            if mended.missing or not self.options.allow_lossy:
                lacks = filesystem_capabilities.probe(self.staging).lacks
                of_volume = "".join(f"\n  no {what}: {CONSEQUENCES[what]}" for what in lacks)
                raise CellblockError(
                    f"{text}\nthe volume is as it was"
                    + (f"; its filesystem has:{of_volume}" if lacks else ""),
                    hint="an older snapshot; or, if nothing is missing, accept it: --allow-lossy",
                )
            self.events.warning(text)
        return replace(mended, losses=mended.losses[:1000])


def _check_space(volume: Volume, staging: Path) -> None:
    """Refuse what cannot fit; holes count as bytes where restic fills them before they are punched."""
    list_file = staging / ".cellblock" / FOLDER / listing.NAME
    if not list_file.exists():
        return
    needs, status = listing.total(list_file), os.statvfs(volume.path)
    available = status.f_bfree * status.f_frsize
    if needs.bytes > available or (status.f_files and needs.entries > status.f_ffree):
        raise CellblockError(
            f"{volume.path} has {available / 1e6:.1f} MB and {status.f_ffree} files free, and the snapshot "
            f"has {needs.bytes / 1e6:.1f} MB in {needs.entries} files; nothing was written",
            hint="free some space or use a larger volume",
        )


def _check_whole(staging: Path, snapshot: Snapshot) -> None:
    """Check that all records of a volume were restored before it is put in place."""
    one = Volume(staging)
    try:
        one.read_state(one.private)
        if not one.is_assembled() or not one.manifest.exists():
            raise ValueError("its root or its manifest is missing")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CellblockError(
            f"the snapshot {snapshot.short} holds no whole jail: {error}; the volume is as it was",
            hint="restore an older one: `jail backup VOLUME REPO --list`",
        ) from None


def _against_image(volume: Volume) -> tuple[int, int]:
    """How many files are damaged and how many users', by metadata."""
    damaged = users = 0
    for one in differing(volume, content=False):
        damaged += one.is_damage
        users += not one.is_damage and not one.behind
    return damaged, users
