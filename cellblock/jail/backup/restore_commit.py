# SPDX-License-Identifier: Apache-2.0
"""Replaces a volume's tree and records by restored ones: both or neither.

The restored tree and records lie in one folder. Renaming it to `.cellblock/restore` is the commit: from
then on it is carried out, in steps that can be repeated, and every other command refuses the volume until
`jail restore` has finished. The trees are exchanged by renameat2(2), so jobs see the old one or the new.
Where that call does not exist (NFS), there is no tree between two renames. The previous tree and records
are moved to `.cellblock/replaced-TIME`, which stays until somebody removes it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cellblock.files.durable import put, sync_directory
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.tree.rename_exchange import exchange
from cellblock.jail.volume.volume import RESTORE, Volume, sync_filesystem


@dataclass(frozen=True)
class Decision:
    """A restore that is being put in place. `replaced` is the folder for the previous tree, or empty."""

    snapshot: str
    replaced: str


def decide(volume: Volume, staging: Path, snapshot: str, check: Callable[[], None] = lambda: None) -> None:
    """Commit: the volume is from now on what `staging` (root/, .cellblock/) holds. Call `finish` next.

    `check` raises when another writer took over while all was flushed.
    """
    old = volume.is_assembled()
    name = f"replaced-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}" if old else ""
    plan = {
        "snapshot": snapshot,
        "replaced": name,
        "root": (staging / "root").stat().st_ino,
        "names": sorted(one.name for one in (staging / ".cellblock").iterdir()),
    }
    put(staging / "plan.json", json.dumps(plan))
    sync_filesystem(volume.path)
    check()
    staging.rename(volume.private / RESTORE)
    sync_directory(volume.private)


def pending(volume: Volume) -> Decision | None:
    """Return the restore that was committed and not finished, if there is one."""
    try:
        plan = json.loads((volume.private / RESTORE / "plan.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return Decision(plan["snapshot"], plan["replaced"])


def finish(volume: Volume) -> Path | None:
    """Carry the decision out, or what is left of it; returns where the old volume is. Needs the lock."""
    new = volume.private / RESTORE
    plan = json.loads((new / "plan.json").read_text(encoding="utf-8"))
    kept = volume.private / plan["replaced"] if plan["replaced"] else None
    if kept:
        (kept / ".cellblock").mkdir(parents=True, exist_ok=True)
    _switch_records(volume, new / ".cellblock", set(plan["names"]), kept)
    _switch_root(volume, new / "root", plan["root"], kept)
    sync_directory(volume.path)
    sync_directory(volume.private)
    # Its last file first: without it there is nothing to finish.
    gone = volume.private / f"staging-restored-{os.getpid()}"
    new.rename(gone)
    remove_tree(gone)
    return kept


def _switch_records(volume: Volume, new: Path, names: set[str], kept: Path | None) -> None:
    for one in volume.lasting():
        if one.name in names and not (new / one.name).exists():
            continue  # the new one already
        if kept:
            one.rename(kept / ".cellblock" / one.name)
        elif one.is_dir():
            remove_tree(one)
        else:
            one.unlink()
    for name in names:
        if (new / name).exists():
            (new / name).rename(volume.private / name)


def _switch_root(volume: Volume, new: Path, inode: int, kept: Path | None) -> None:
    if kept and volume.root.exists() and new.exists() and new.stat().st_ino == inode:
        with _opened(volume.path) as here, _opened(new.parent) as there:
            if not exchange(there, b"root", here, b"root"):
                volume.root.rename(kept / "root")
                new.rename(volume.root)
                return
    if new.exists():
        if new.stat().st_ino == inode:
            new.rename(volume.root)  # over nothing, or over an empty folder
        elif kept:
            new.rename(kept / "root")


class _opened:  # noqa: N801 - a context manager that is read as a verb
    """Open a directory for as long as the block lasts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._descriptor = os.open(self._path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._descriptor

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)
