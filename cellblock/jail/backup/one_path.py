# SPDX-License-Identifier: Apache-2.0
"""Restores one path of a jail, such as a deleted file or a home directory (`jail restore --path`).

The volume stays in use meanwhile. restore.py restores whole volumes.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events
from cellblock.jail.apply.transaction_runner import open_volume
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
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.entry import shown
from cellblock.jail.tree.rename_exchange import exchange, move

_TRIES = 8
"""How often a place is tried that users fill and empty at the same time."""


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
    volume, _ = open_volume(volume_path)
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
                with TreeAccess(os.fsencode(staging)) as restored:
                    if not _is_there(restored, b"root/" + source):
                        raise CellblockError(
                            f"the snapshot {snapshot.short} of {snapshot.time} has no {wanted}",
                            hint=f"look for it in another: `jail backup {volume_path} {repository} --list` "
                            "lists them, and `--snapshot ID` names one; a path is as jobs see it: /home/ada",
                        )
                mended = work.reconcile(source)
                check()
                _check_target(access, target, to or wanted, replace=options.replace)
                kept = volume.private / f"replaced-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
                with TreeAccess(os.fsencode(staging)) as restored:
                    has_kept = _put(
                        restored.at(b"root/" + source), access.at(target), kept if options.replace else None
                    )
    where = volume.root / os.fsdecode(target)
    seconds = time.monotonic() - started
    return RestoreResult(snapshot, where, kept if has_kept else None, mended, 0, 0, seconds)


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
            hint=f"restore the folder itself: --path {name.rstrip('/').rpartition('/')[0] or '/'}; or put it "
            "elsewhere in the jail: --to PATH",
        ) from None
    if there and not replace:
        raise CellblockError(
            f"{name} exists; nothing was changed",
            hint="--to PATH puts it elsewhere in the jail; --replace keeps what is there beside the jail",
        )
    return there


def _is_there(tree: TreeAccess, path: bytes) -> bool:
    try:
        return tree.status(path) is not None
    except Blocked:
        return False


def _put(restored: tuple[int, bytes], target: tuple[int, bytes], kept: Path | None) -> bool:
    """Give the restored file the name of `target`; whether one had it, which is in the folder `kept` now.

    Both are a directory and a name in it: users may make and remove what has the name meanwhile. Raises
    CellblockError where that must stay (no `kept`), or they do so without end.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(FileExistsError):
            move(*restored, *target)
            return False
        if kept is None:
            raise CellblockError(
                f"{shown(target[1])} was made there meanwhile; nothing was changed",
                hint="--to PATH puts it elsewhere in the jail; --replace keeps what is there beside the jail",
            )
        with contextlib.suppress(FileNotFoundError):
            _exchange(restored, target, kept)
            return True
    raise CellblockError(
        f"{shown(target[1])} is made and removed again and again; nothing was changed",
        hint="end the program in the jail that does so, then run this again",
    )


def _exchange(restored: tuple[int, bytes], target: tuple[int, bytes], kept: Path) -> None:
    kept.mkdir(mode=0o700, exist_ok=True)
    aside = os.fsencode(kept) + b"/" + target[1]
    if exchange(*restored, *target):
        os.rename(restored[1], aside, src_dir_fd=restored[0])
    else:
        os.rename(target[1], aside, src_dir_fd=target[0])
        move(*restored, *target)
