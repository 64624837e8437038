# SPDX-License-Identifier: Apache-2.0
"""Runs a transaction on a volume: the steps that upgrade, rollback and repair have in common.

The steps are: become the only writer, finish an interrupted transaction, stage the new files, commit,
replace files, update the records. A crash before the commit leaves a folder that the next run removes. A
crash after it leaves a transaction that the next run finishes, whichever command that is. Jobs keep running
meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.errors import CellblockError
from cellblock.events import Events, Progress, State, SubjectState
from cellblock.jail.apply import transaction
from cellblock.jail.apply.staging import arranged, stage
from cellblock.jail.apply.transaction import Transaction
from cellblock.jail.merge import change_plan
from cellblock.jail.merge.action_lists import kept, last_of_shared
from cellblock.jail.merge.change_plan import Finding, Plan
from cellblock.jail.source.image import NOTE, release
from cellblock.jail.source.scan import Blobs
from cellblock.jail.tree import databases
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.entry import Entry, shown
from cellblock.jail.tree.file_handle import UnreadableError
from cellblock.jail.tree.manifest import DAMAGED_HINT
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.tree.unsupported import MetadataTrial, UnsupportedMetadata
from cellblock.jail.volume import history
from cellblock.jail.volume.apt_lock import apt_locked
from cellblock.jail.volume.filesystem_errors import filesystem_errors
from cellblock.jail.volume.volume import Volume, VolumeState
from cellblock.privilege import require_root

if TYPE_CHECKING:  # an upgrade at rest does without the core
    from cellblock.jail.tree.unsupported import Loss


Check = Callable[[], None]
"""Raises when another writer took the volume over."""


@dataclass(frozen=True)
class UpgradeResult:
    """The result of a transaction (with `changed` false: of a plan). `number` is its number in history, or 0.

    `skipped` lists what users changed between the plan and its execution, `losses` what the volume could not
    hold and was accepted without just now.
    """

    plan: Plan
    changed: bool
    number: int
    skipped: tuple[Finding, ...]
    seconds: float
    losses: tuple[Loss, ...] = ()


def open_volume(path: Path) -> tuple[Volume, VolumeState]:
    """The volume at `path` and what it holds. Raises CellblockError when it holds nothing."""
    require_root("a jail keeps the owners of its files, which only root can set")
    volume = Volume(path.absolute())
    state = volume.state()
    if state is None:
        raise CellblockError(
            f"{path} holds no jail yet", hint="`jail assemble SOURCE VOLUME` makes one; an upgrade changes it"
        )
    if not volume.manifest.exists():
        raise CellblockError(f"{volume.manifest} is missing", hint=DAMAGED_HINT)
    return volume, state


@contextlib.contextmanager
def exclusive_writer(
    volume: Volume, what: str, events: Events
) -> Iterator[tuple[Check, UpgradeResult | None]]:
    """Become the only writer of the volume and its packages; finish an interrupted transaction first."""
    started = time.monotonic()
    with volume.lock(what, events.info) as check, apt_locked(volume.root):
        for leftover in volume.leftovers():
            events.info(f"removing what an interrupted run left in {leftover}")
            for note in leftover.glob(f"{NOTE}*"):
                release(note)
            remove_tree(leftover)
        interrupted = transaction.pending(volume)
        resumed = None
        if interrupted is not None:
            events.info(f"finishing what was interrupted: {interrupted.folder}")
            resumed = _run(volume, interrupted, check, events, started)
        yield check, resumed


@contextlib.contextmanager
def preparing(volume: Volume) -> Iterator[Path]:
    """Make the folder of a transaction. It is removed at the end, unless a commit renamed it."""
    with (
        filesystem_errors(volume.path, "change", when_full="the tree was not changed"),
        volume.staging() as folder,
    ):
        yield folder


def refuse_new_glibc(plan: Plan, *, drained: bool) -> None:
    """Raise CellblockError when the plan brings another C library and jobs may be running."""
    if plan.glibc is not None and not drained:
        before, after = plan.glibc
        raise CellblockError(
            f"this brings the C library from {before} to {after}, and programs that start in that moment "
            "would load one half of each; nothing was changed",
            hint="let no job run on the volume (docs/slurm-in-the-jail.md says how), then run this again "
            "with --drained",
        )


def stage_files(
    volume: Volume, plan: Plan, blobs: Blobs, folder: Path, unsupported: UnsupportedMetadata | None = None
) -> Plan:
    """Make the plan's new files of the content in `blobs`, which are used up, and write the plan down.

    `unsupported` (by default the volume's) finds out what the volume cannot hold. Returns the plan as it was
    written: with its actions in their final order.
    """

    keep_records(volume, folder)

    def find(entry: Entry) -> int | None:
        try:
            return os.open(blobs.path(entry.digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    actions = arranged(plan, find)
    last = last_of_shared(actions)

    def fetch(number: int, entry: Entry, path: bytes) -> None:
        text = plan.contents.get(entry.digest)
        if text is not None:
            with open(path, "xb") as file:  # noqa: PTH123 - pathlib knows no paths of bytes
                file.write(text)
        elif last.get(entry.digest, number) == number:
            os.rename(blobs.path(entry.digest), path)  # noqa: PTH104
        else:
            shutil.copyfile(blobs.path(entry.digest), path)

    stage(actions, folder / "new", fetch, unsupported or MetadataTrial(volume.private, allow=False))
    shutil.rmtree(blobs.folder)
    final = replace(plan, actions=kept(actions))
    write_records(volume, final, folder)
    return final


def keep_records(volume: Volume, folder: Path) -> None:
    """Keep what the volume's records are, for a rollback. Raises CellblockError without hard links.

    First of all: a new file with several names would fail for the same reason, and not say so.
    """
    (folder / "old").mkdir(mode=0o700)
    for name in transaction.RECORDS:
        try:
            os.link(volume.private / name, folder / "old" / name)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            raise no_hard_links(volume) from None


def no_hard_links(volume: Volume) -> CellblockError:
    """The error for a filesystem without hard links: nothing on it can be changed under running jobs."""
    return CellblockError(
        f"{volume.path} cannot be changed under running jobs: its filesystem has no hard links; "
        "nothing was changed",
        hint="assemble the image into another volume, on ext4, xfs, btrfs or NFS",
    )


def write_records(volume: Volume, plan: Plan, folder: Path) -> None:
    """Write down the plan, and what a rollback needs too: the tree's databases before and after."""
    _refuse_immutable_databases(volume, plan)
    (folder / "kept").mkdir(mode=0o700)
    before = databases.of_root(volume.root)
    after = dict(before)
    for action in plan.actions:
        if databases.is_database(action.path):
            if action.after is None:
                after.pop(action.path, None)
            elif action.after.digest in plan.contents:
                after[action.path] = plan.contents[action.after.digest]
    new = folder / "new"
    for number, action in enumerate(plan.actions):
        if action.verb == "put" and databases.is_database(action.path):
            if action.after is not None and action.after.kind == "f":
                content = _read_new(new / str(number))
                if content is not None:
                    after[action.path] = content
                    continue
            after.pop(action.path, None)  # a link is not followed, as by `databases.of_tree`
    databases.save(folder / "before", before)
    databases.save(folder / "after", after)
    change_plan.write(plan, folder / "plan")


def _read_new(path: Path) -> bytes | None:
    """The content of a new file; None for one too large for a database: users may have another name of it."""
    with TreeAccess(os.fsencode(path.parent)) as access:
        try:
            return access.read(os.fsencode(path.name), databases.MOST)
        except UnreadableError:
            return None
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            return None


def _refuse_immutable_databases(volume: Volume, plan: Plan) -> None:
    """Any other file can stay as it is; a package database that does not know of the new files cannot."""
    with TreeAccess(os.fsencode(volume.root)) as access:
        for action in plan.actions:
            merged = action.after is not None and action.after.digest in plan.contents
            if (merged or action.path == databases.STATUS) and access.is_immutable(action.path):
                raise CellblockError(
                    f"{shown(action.path)} of {volume.path} is immutable, or its directory is, and has to "
                    "change; nothing was changed",
                    hint=f"chattr -i {volume.root}{shown(action.path)}, then run this again",
                )


def carry_out(
    volume: Volume, folder: Path, check: Check, events: Events, started: float, plan: Plan | None = None
) -> UpgradeResult:
    """Commit what was staged in `folder`, and do it. `plan` saves reading what was written there."""
    running = Transaction(volume, folder)
    running.commit(check)
    return _run(volume, running, check, events, started, plan)


def _run(
    volume: Volume,
    running: Transaction,
    check: Check,
    events: Events,
    started: float,
    plan: Plan | None = None,
) -> UpgradeResult:
    subject = volume.path.name
    events.emit(SubjectState(subject, "running"))
    ended: State = "failed"
    try:
        with events.step(subject, "replace files"):
            plan = plan or change_plan.read(running.folder / "plan")
            running.run(plan, check, lambda done, total: _tick(events, subject, done, total))
            if plan.regenerate_cache:
                _make_ld_cache(volume.root, events)
        check()
        previous = volume.read_state(running.folder / "old").source
        number = int(running.number())
        undoes = running.folder / "undoes"
        if undoes.exists():
            for undone in undoes.read_text().split():
                history.mark_undone(volume, int(undone), number)
        running.finish(
            {
                "operation": plan.operation,
                "source": str(plan.source),
                "previous": str(previous),
                "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "actions": len(plan.actions),
            }
        )
        history.prune(volume)
        ended = "done"
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CellblockError(
            f"{volume.path} is full; the files were replaced, the records of that are still to be written",
            hint="free some space, then run the same command again: it goes on where this stopped",
        ) from error
    finally:
        events.emit(SubjectState(subject, ended, seconds=time.monotonic() - started))
    return UpgradeResult(plan, True, number, tuple(running.skipped), time.monotonic() - started)


def _tick(events: Events, subject: str, done: int, total: int) -> None:
    if done % 256 == 0 or done == total:
        events.emit(Progress(subject, done, total, "files"))


def _make_ld_cache(root: Path, events: Events) -> None:
    """The loader's cache lists users' libraries too, so neither the image's nor the old one is right.

    ldconfig(8) changes its root before it looks at anything, and only reads; -X: it makes no links.
    -C: the file that it would write is the same for all that run it, also in jobs at this moment
    (images/jail says more).
    """
    from cellblock.process import Programs

    name = f"ld.so.cache.upgrade-{os.getpid()}"
    # Bounded: it waits for ever for a FIFO that a link in ld.so.conf.d leads to.
    ldconfig = ["timeout", "-k", "5", "120", "/sbin/ldconfig", "-X", "-r", str(root), "-C", f"/etc/{name}"]
    why = _special_configuration(root)
    if not why:
        done = Programs().run(ldconfig, check=False)
        why = "" if done.status == 0 else " ".join(done.tail)
    if not why:
        try:
            with TreeAccess(os.fsencode(root)) as access:
                folder = access.folder(b"etc")
                os.rename(name, "ld.so.cache", src_dir_fd=folder, dst_dir_fd=folder)
        except (OSError, Blocked) as error:
            why = f"etc/ld.so.cache: {error}"
    if why:
        events.warning(f"ldconfig failed in {root}: {why}; run it in the jail")


def _special_configuration(root: Path) -> str:
    """Say which configuration file of the loader is a FIFO or a device, on which ldconfig(8) would hang."""
    with TreeAccess(os.fsencode(root)) as access:
        names = access.names(b"etc/ld.so.conf.d")
        for path in (b"etc/ld.so.conf", *(b"etc/ld.so.conf.d/" + name for name in names)):
            with contextlib.suppress(Blocked):
                handle = access.open_handle(path)
                if handle is not None:
                    with handle:
                        if handle.kind not in ("f", "l", "d"):
                            return f"{shown(path)} is no file"
    return ""
