# SPDX-License-Identifier: Apache-2.0
"""Makes a volume of a tree that is there already (`jail adopt`): finds its packages and writes its records.

Nothing in the tree is changed. Its manifest lists the files that still have the checksums of their dpkg
packages. All other files count as users' own. docs/decisions/jail-adopt.md says why.

The state is written last: a killed run leaves no volume, and the same command starts again.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.events import Events, Progress
from cellblock.files import durable
from cellblock.jail.source.identity import SourceIdentity
from cellblock.jail.tree import databases, manifest
from cellblock.jail.tree.access import TreeAccess
from cellblock.jail.tree.installed_files import InstalledFiles, read_installed
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.volume import filesystem_capabilities
from cellblock.jail.volume.apt_lock import apt_locked
from cellblock.jail.volume.filesystem_capabilities import CONSEQUENCES
from cellblock.jail.volume.filesystem_errors import filesystem_errors
from cellblock.jail.volume.found_tree import FoundTree, check_tree, find_tree
from cellblock.jail.volume.volume import RESTORE, Volume, VolumeState
from cellblock.privilege import require_root

_NEEDED = ("owners", "modes", "symbolic links", "hard links")
"""What an upgrade of any Debian needs; without the rest it says what it cannot bring."""


@dataclass(frozen=True)
class AdoptResult:
    """What `adopt` found. Without `changed` it was done before, and `files` is None."""

    root: Path
    source: SourceIdentity
    changed: bool
    entries: int
    files: InstalledFiles | None
    seconds: float


def adopt(directory: Path, events: Events, *, volume: Path | None = None) -> AdoptResult:
    """Make the tree at `directory` a volume's: in its place, or by one rename as `volume`/root.

    Raises CellblockError when that cannot be (see `found_tree`), when the volume holds something else, and
    when another writer, apt or dpkg is at work. The tree is then as it was, and where it was.
    """
    started = time.monotonic()
    require_root("a jail keeps the owners of its files, which only root can set")
    done = _moved_before(directory, volume)
    if done is not None:
        return AdoptResult(done[0].root, done[1].source, False, done[1].entries, None, 0.0)
    found = find_tree(directory, volume)
    target = found.volume
    state = _held(found)
    if state is not None:
        return AdoptResult(target.root, state.source, False, state.entries, None, time.monotonic() - started)
    check_tree(found)
    with filesystem_errors(target.path, "adopt a tree as", when_full="the tree was not changed"):
        target.prepare()
        with (
            target.lock(f"jail adopt {directory}", events.info) as check,
            apt_locked(found.tree, make=False),
        ):
            state = _held(found)  # of another one, since the look before the lock
            if state is not None:
                return AdoptResult(target.root, state.source, False, state.entries, None, 0.0)
            for leftover in target.leftovers():
                remove_tree(leftover)
            _check_filesystem(target, events)
            with target.staging() as staging:
                files = _read(found, events)
                state = _record(found, directory, files, staging)
                check()
                with events.step(target.path.name, "write the records"):
                    target.publish_records(staging, None if found.moves else check)
                    if found.moves:
                        target.take(found.tree, check)
    seconds = time.monotonic() - started
    return AdoptResult(target.root, state.source, True, state.entries, files, seconds)


def _moved_before(directory: Path, volume: Path | None) -> tuple[Volume, VolumeState] | None:
    """The volume that the tree was moved to by the same command before."""
    if volume is None or directory.exists():
        return None
    target = Volume(volume.absolute())
    state = target.state()
    if state is None or not state.source.is_adopted or state.source.reference != str(directory.absolute()):
        return None
    return target, state


def _held(found: FoundTree) -> VolumeState | None:
    """The state of a volume whose tree this is, adopted before. Raises CellblockError for any other."""
    target = found.volume
    recorded = (target.private / "state.json").exists() or (target.private / RESTORE).exists()
    state = target.state() if recorded or found.moves else None
    if state is None or (state.source.is_adopted and not found.moves):
        return state
    raise CellblockError(
        f"{target.path} is a volume already, with {state.source}; nothing was changed",
        hint=f"`jail status {target.path}` shows it, `jail upgrade IMAGE {target.path}` brings it to an "
        f"image; records of another tree can be moved away: mv {target.private} {target.private}.old",
    )


def _check_filesystem(target: Volume, events: Events) -> None:
    lacks = filesystem_capabilities.probe(target.private).lacks
    for what in lacks:
        if what in _NEEDED:
            raise CellblockError(
                f"the filesystem of {target.path} holds no {what}, which upgrades need: "
                f"{CONSEQUENCES[what]}; nothing was changed",
                hint="move the tree to ext4, xfs, btrfs, or NFS 4.2 without squashed root",
            )
        events.warning(
            f"the filesystem of {target.path} holds no {what}: {CONSEQUENCES[what]}; an upgrade to an image "
            "that has them needs --allow-lossy"
        )


def _read(found: FoundTree, events: Events) -> InstalledFiles:
    subject = found.volume.path.name

    def report(done: int, total: int) -> None:
        events.emit(Progress(subject, done, total, "files"))

    with TreeAccess(os.fsencode(found.tree)) as access:
        with events.step(subject, "find the packages"):
            found_databases = databases.of_tree(access)
        with events.step(subject, "read their files"):
            files = read_installed(access, found_databases, report)
        if not files.packages:
            raise CellblockError(
                f"{found.tree} has a dpkg database in which no package is installed; nothing was changed",
                hint="`jail assemble DIRECTORY VOLUME` makes a volume of a tree without packages",
            )
        access.forget()
        if databases.of_tree(access) != found_databases:
            raise CellblockError(
                f"packages or accounts of {found.tree} changed while it was read; nothing was changed",
                hint="run this again when nobody installs anything or adds users",
            )
    return files


def _record(found: FoundTree, directory: Path, files: InstalledFiles, staging: Path) -> VolumeState:
    """Write the records of a volume into `staging`, and flush them."""
    digest = manifest.write(staging / "manifest", files.entries)
    databases.save(staging / "controls", files.databases)
    for name in ("manifest", "controls"):
        durable.flush(staging / name)
    state = VolumeState(
        SourceIdentity("adopted", str(directory.absolute()), f"sha256:{digest}"),
        digest,
        len(files.entries),
        files.size,
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    found.volume.write_state(state, staging)
    return state
