"""Bring one path of a jail back: a file that somebody deleted, a home."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events
from cellblock.jail.backup.repository import Repository
from cellblock.jail.backup.restic import Restic
from cellblock.jail.backup.restore import (
    RestoreOptions,
    RestoreResult,
    Restoring,
    as_root,
    choose,
    clean,
    staged,
)
from cellblock.jail.execution import assembled
from cellblock.jail.rename_exchange import exchange
from cellblock.jail.tree_access import Blocked, TreeAccess


def restore_path(
    volume_path: Path,
    repository: Repository,
    events: Events,
    options: RestoreOptions,
    wanted: str,
    to: str | None = None,
) -> RestoreResult:
    """Restore `wanted`, a path as jobs see it, to the same path or to `to`; both below the jail's root.

    What is at that path is refused, or with `options.replace` kept in `.cellblock/replaced-TIME`. Raises
    CellblockError; the tree is then as it was.
    """
    started = time.monotonic()
    as_root()
    source, target = _inside(wanted), _inside(to or wanted)
    volume, _ = assembled(volume_path)
    restic = Restic(repository)
    snapshot = choose(restic, options.snapshot, options.name)
    with volume.lock(f"jail restore {volume_path} --path {wanted}", events.info) as check:
        clean(volume, events)
        with TreeAccess(os.fsencode(volume.root)) as access:
            _check_target(access, target, to or wanted, replace=options.replace)
            access.forget()
            with staged(volume) as staging:
                work = Restoring(restic, snapshot, volume, staging, events, options)
                work.fetch("/.cellblock/backup", "restore the list")
                work.fetch(b"/root/" + source, f"restore {wanted}")
                restored = os.fsencode(staging / "root") + b"/" + source
                if not os.path.lexists(restored):
                    raise CellblockError(
                        f"the snapshot {snapshot.short} of {snapshot.time} has no {wanted}",
                        hint="look for it in another: `jail backup --list`, `restic ls SNAPSHOT`",
                    )
                mended = work.mend(source)
                check()
                existing = _check_target(access, target, to or wanted, replace=options.replace)
                kept = None
                if existing:
                    kept = volume.private / f"replaced-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
                    kept.mkdir(mode=0o700)
                _put(access, restored, target, kept)
    where = volume.root / os.fsdecode(target)
    return RestoreResult(snapshot, where, kept, mended, 0, 0, time.monotonic() - started)


def _inside(path: str) -> bytes:
    parts = os.fsencode(path).strip(b"/").split(b"/")
    if not path.startswith("/") or b".." in parts or parts == [b""]:
        raise UsageError(
            f"{path!r} is no path below the jail's root", hint="write it as jobs see it: /home/ada"
        )
    return b"/".join(part for part in parts if part not in (b"", b"."))


def _check_target(access: TreeAccess, target: bytes, name: str, *, replace: bool) -> bool:
    """Whether there is something at `target`. Raises CellblockError where nothing may be put there."""
    try:
        access.folder(target.rpartition(b"/")[0])
        there = access.status(target) is not None
    except (Blocked, FileNotFoundError):
        raise CellblockError(
            f"the folder that {name} belongs into is not there; nothing was changed",
            hint="restore the folder itself, or put it elsewhere with --to",
        ) from None
    if there and not replace:
        raise CellblockError(
            f"{name} exists; nothing was changed",
            hint="--to PATH puts it elsewhere in the jail; --replace keeps what is there beside the jail",
        )
    return there


def _put(access: TreeAccess, restored: bytes, target: bytes, kept: Path | None) -> None:
    """Give the restored file its name; what had it goes to the folder `kept`."""
    parent, name = access.at(target)
    if kept is None:
        os.rename(restored, name, dst_dir_fd=parent)
        return
    folder, _, last = restored.rpartition(b"/")
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    aside = os.fsencode(kept) + b"/" + name
    try:
        if exchange(descriptor, last, parent, name):
            os.rename(restored, aside)  # noqa: PTH104
        else:
            os.rename(name, aside, src_dir_fd=parent)
            os.rename(restored, name, dst_dir_fd=parent)
    finally:
        os.close(descriptor)
