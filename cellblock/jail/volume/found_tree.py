# SPDX-License-Identifier: Apache-2.0
"""Checks a directory that `jail adopt` is to make a volume of, and decides where the volume will be.

Root outside will read this tree later. So nobody but root may be able to exchange it, and nothing may be
mounted over a part of it. What does not fit is refused.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError, UsageError
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.databases import STATUS
from cellblock.jail.volume.mount_table import mounts_of, unescaped
from cellblock.jail.volume.volume import Volume
from cellblock.machine.processes import PROC

_OTHERS = {
    b"var/lib/rpm": "RPM",
    b"usr/lib/sysimage/rpm": "RPM",
    b"usr/share/rpm": "RPM",
    b"lib/apk/db": "apk",
    b"usr/lib/apk/db": "apk",
    b"var/lib/pacman": "pacman",
}
"""Folders of other package managers' databases."""


@dataclass(frozen=True)
class FoundTree:
    """A tree, and the volume that it becomes. `moves`: it lies elsewhere, to be renamed to VOLUME/root."""

    tree: Path
    volume: Volume
    moves: bool


def find_tree(directory: Path, volume: Path | None) -> FoundTree:
    """Find the tree that a user means by `directory`: itself, or `root` in it. Raises CellblockError."""
    place = directory.absolute()
    if place.is_symlink():
        raise CellblockError(
            f"{directory} is a symbolic link to {place.readlink()}; nothing was changed",
            hint=f"name the directory itself: {place.resolve()}",
        )
    if not place.is_dir():
        what = "is no directory" if place.exists() else "does not exist"
        raise CellblockError(f"{directory} {what}; nothing was changed", hint="name the root of a tree")
    place = place.resolve()
    inner = place / "root"
    if volume is not None and volume.resolve() != place:
        target = volume.absolute()
        if target.resolve().is_relative_to(place):
            raise CellblockError(
                f"the volume {volume} lies inside the tree {directory}; nothing was changed",
                hint="name a directory beside the tree, on the same filesystem",
            )
        return FoundTree(place, Volume(target), moves=target.resolve() / "root" != place)
    if not _has_status(place) and not inner.is_symlink() and _has_status(inner):
        return FoundTree(inner, Volume(place), moves=False)
    if place.name == "root" and place.parent != Path("/"):
        return FoundTree(place, Volume(place.parent), moves=False)
    if place.samefile("/"):
        raise CellblockError(f"{directory} is the root of this machine; nothing was changed", hint=_COPY)
    _check_database(place)
    raise UsageError(
        f"no volume is named for {directory}: a volume is a directory in which the tree is called `root`",
        hint=f"name one on the same filesystem, for example: jail adopt {directory} {place.parent / 'jail'} "
        f"(the tree becomes {place.parent / 'jail' / 'root'} by one rename)",
    )


_COPY = "`jail assemble DIRECTORY VOLUME` makes a volume of a copy, and leaves the tree alone"


def check_tree(found: FoundTree) -> None:
    """Refuse a tree that is in use in a way that matters, or that others than root could replace.

    Raises CellblockError; nothing was written.
    """
    tree = found.tree
    for above in (tree, *tree.parents):
        if above.name == "root" and above != tree and (above.parent / ".cellblock/state.json").exists():
            raise CellblockError(
                f"{tree} lies inside the jail {above.parent}; nothing was changed", hint="name another tree"
            )
        _check_owner(above, tree)
    _check_mounts(tree)
    _check_database(tree)
    beside = found.volume.path
    while not beside.exists():
        beside = beside.parent
    if tree.stat().st_dev != beside.stat().st_dev:
        raise CellblockError(
            f"{tree} and {beside} are on different filesystems, and an upgrade renames files from one to the "
            "other; nothing was changed",
            hint=f"name a volume on the tree's own filesystem; or {_COPY}",
        )


def _check_owner(place: Path, tree: Path) -> None:
    status = place.stat()
    # In a directory with the sticky bit nobody renames what is root's.
    shared = status.st_mode & 0o022 and (place == tree or not status.st_mode & stat.S_ISVTX)
    if status.st_uid == 0 and not shared:
        return
    raise CellblockError(
        f"{place} is not root's alone to write (owner {status.st_uid}, mode "
        f"{stat.S_IMODE(status.st_mode):o}): others could put another tree in the place of this one; "
        "nothing was changed",
        hint=f"chown root:root {place} && chmod 755 {place}, if nobody else needs it; or move the tree",
    )


def _check_mounts(tree: Path) -> None:
    """Refuse what is not the tree on its disk: a mount over it or a part of it, a layer of an overlay."""
    for mount in mounts_of(PROC / "self"):
        point = Path(mount.point)
        if point == tree:
            raise CellblockError(
                f"{tree} is a mount of its own, and a volume keeps its records beside the tree, on the same "
                "filesystem; nothing was changed",
                hint="mount the directory above it, in which the tree is called `root` "
                f"(docs/jail-adopt.md says how for an overlay and for NFS); or {_COPY}",
            )
        if point.is_relative_to(tree):
            raise CellblockError(
                f"{tree} is in use: {point} is mounted in it; nothing was changed",
                hint=f"end what uses it, then: umount {point}",
            )
        if mount.kind == "overlay":
            for layer in _layers(mount.options):
                if tree.is_relative_to(layer) or layer.is_relative_to(tree):
                    raise CellblockError(
                        f"{tree} is a layer of the overlay at {point}, and changes below an overlay break "
                        "it; nothing was changed",
                        hint=f"name the merged view below {point}; or unmount the overlay first",
                    )


def _layers(options: str) -> list[Path]:
    """The directories that an overlay is made of: Linux, Documentation/filesystems/overlayfs."""
    found = []
    for option in options.split(","):
        key, _, value = option.partition("=")
        if key.rstrip("+") in ("lowerdir", "upperdir", "workdir", "datadir"):
            found += [Path(unescaped(one)) for one in value.split(":") if one.startswith("/")]
    return found


def _has_status(tree: Path) -> bool:
    """Whether that is the root of a tree of dpkg's, or one whose database lies behind a link."""
    try:
        with TreeAccess(os.fsencode(tree)) as access:
            return access.status(STATUS) is not None
    except Blocked:
        return True
    except OSError:
        return False


def _check_database(tree: Path) -> None:
    """Refuse a tree without dpkg's database, and say what it has instead."""
    with TreeAccess(os.fsencode(tree)) as access:
        try:
            status = access.status(STATUS)
        except Blocked as error:
            raise CellblockError(
                f"{tree}: {os.fsdecode(error.path)} is a link or no directory, so dpkg's database is not "
                "read: a link could lead out of the tree; nothing was changed",
                hint=f"make {tree / os.fsdecode(error.path)} a directory of the tree; or {_COPY}",
            ) from None
        if status is not None and stat.S_ISREG(status.st_mode):
            return
        other = next((name for path, name in _OTHERS.items() if access.names(path)), None)
        if not access.names(b""):
            raise CellblockError(f"{tree} is empty; nothing was changed", hint="name the root of a tree")
    what = f"its packages are of {other}" if other else f"there is no {os.fsdecode(STATUS)}"
    raise CellblockError(
        f"{tree} has no dpkg database, by which alone packages are found: {what}; nothing was changed",
        hint="adopt trees of Debian or Ubuntu; " + _COPY,
    )
