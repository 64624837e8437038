# SPDX-License-Identifier: Apache-2.0
"""Compares a volume's tree with its image's manifest, and tells damage from what users did on purpose.

Damage is a difference that nobody can have meant: content that changed while the file's time did not (a
failing disk, a bad restore), and programs, libraries and data of the image that are missing or different
although no package of the users explains it. Everything else is the users' own: their versions of packages,
configuration, state, files that an upgrade found changed and left, directories that they moved and linked
to, and the owners, modes and removals that they chose (`intended_changes`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from cellblock.errors import CellblockError
from cellblock.jail.merge.identities import between
from cellblock.jail.merge.intended_changes import IntendedChanges
from cellblock.jail.tree import databases, tree_check
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.dpkg_database import Database, info_owner
from cellblock.jail.tree.entry import Entry
from cellblock.jail.tree.file_handle import Stamp, UnreadableError
from cellblock.jail.tree.manifest_index import opened
from cellblock.jail.tree.tree_check import Difference
from cellblock.jail.tree.unsupported import UnsupportedMetadata
from cellblock.jail.volume import history
from cellblock.jail.volume.base_databases import known_databases
from cellblock.jail.volume.volume import Volume

_USERS = (
    "etc",
    "var",
    "home",
    "root",
    "opt",
    "srv",
    "mnt",
    "media",
    "tmp",
    "run",
    "boot",
    "dev",
    "proc",
    "sys",
)
_USERS_FOLDERS = (*(name.encode() + b"/" for name in _USERS), b"usr/local/")
_EXACT = frozenset((*(name.encode() for name in _USERS), b"usr/local", b""))
"""Where users and running systems write as a matter of course."""


_MODE_AND_OWNER = Difference.MODE | Difference.OWNER


@dataclass(frozen=True)
class Differing:
    """A file of the image that differs in the tree. `entry` is what it should be, `now` what it is.

    `is_choice`: users gave it another owner or mode, or removed it; a repair may undo that when told to.
    `package` is the users' package that it is about, if any. `behind` is the link of the users' in the place
    of a directory that it would be below; then nobody looked where that leads.
    """

    entry: Entry
    now: Entry | None
    stamp: Stamp | None
    difference: Difference
    is_damage: bool
    package: str = ""
    behind: bytes = b""
    is_choice: bool = False

    @property
    def is_link_for_folder(self) -> bool:
        """Whether it is a link in the place of a directory: nothing does that by itself."""
        return self.entry.kind == "d" and self.now is not None and self.now.kind == "l"

    @property
    def what(self) -> str:
        """The difference in words: what users removed is not said to be missing."""
        if self.difference == Difference.MISSING and not self.is_damage:
            return "removed"
        return ", ".join(one.name.lower() for one in Difference if one in self.difference and one.name)


def differing(
    volume: Volume,
    *,
    content: bool,
    progress: Callable[[int], None] = lambda lines: None,
    damaged: Callable[[CellblockError], None] = lambda error: None,
) -> Iterator[Differing]:
    """List the files of the image that differ in the tree, in the manifest's order. Raises CellblockError.

    `damaged` is told of upgrades whose records cannot be read: what users kept then counts as damage.
    """
    with TreeAccess(os.fsencode(volume.root)) as access, opened(volume.manifest) as index:
        judge = _Judge(volume, IntendedChanges(index), damaged)
        for found in tree_check.check(volume.manifest, volume.root, content=content, progress=progress):
            result = judge.judge(found, access)
            if result is not None:
                yield result


class _Judge:
    def __init__(
        self, volume: Volume, choices: IntendedChanges, damaged: Callable[[CellblockError], None]
    ) -> None:
        self._choices = choices
        state = volume.state()
        assert state is not None  # who compares has asked
        image = known_databases(volume, state)
        tree = databases.of_root(volume.root)
        self._ids = between(image, tree)
        self._without = UnsupportedMetadata.of(volume.private)
        base, now = Database(image, {}), Database(tree, {})
        self._of_users: dict[bytes, str] = {}
        installed = now.installed
        for key, package in base.installed.items():
            theirs = installed.get(key)
            if theirs is None or theirs.version != package.version:
                for database in (base, now):
                    self._of_users.update((path, key) for path in database.places(key))
        self.packages = set(self._of_users.values())
        self._overridden = _overrides(tree) - _overrides(image)
        self._accepted, unknown = history.kept_by_users(volume)
        for one in unknown:
            damaged(one.why)
        # What stands where users diverted a package's file from (dpkg-divert(1)) is theirs.
        self._diverted = now.diversions.keys() - base.diversions.keys()
        self._accepted |= self._diverted

    def judge(self, found: tree_check.Found, access: TreeAccess) -> Differing | None:
        entry = self._ids.apply(found.entry)
        assert entry is not None
        entry = self._without.attributes(entry)
        path = entry.path
        behind = b""
        try:
            now, stamp = seen(path, access)
        except Blocked as error:
            now = stamp = None
            behind = error.path if is_link(error.path, access) else b""
        difference = found.difference
        if stamp is not None:
            if now is not None:
                difference = self._without.differs(_exactly(entry, now, difference))
        elif self._without.has_no(entry.kind):
            return None
        if Difference.LINK in difference and _is_gone(entry.target, access):
            difference &= ~Difference.LINK  # of the other name there is a finding of its own
        if not difference:
            return None
        package = self._of_users.get(path) or info_owner(path) or ""
        if package not in self.packages:
            package = ""
        overridden = path in self._overridden and not difference & ~_MODE_AND_OWNER
        damage = choice = False
        if not package:
            silent = Difference.CONTENT in difference and not difference & (Difference.TIME | Difference.SIZE)
            damage = silent or Difference.UNREADABLE in difference or not self._is_users(path)
        if damage and overridden:
            damage = False
        if damage and difference == Difference.TIME:
            damage = not self._same_content(entry, access)
            difference |= Difference.CONTENT if damage else Difference(0)
        explained = package or behind or overridden or path in self._diverted
        if not explained and not self._is_place_of_users(path):
            choice = self._choices.made(entry, now, difference, access)
            damage = damage and not choice
        result = Differing(entry, now, stamp, difference, damage, package, behind, choice)
        return replace(result, is_damage=False) if behind or result.is_link_for_folder else result

    def _is_users(self, path: bytes) -> bool:
        if self._is_place_of_users(path) or path in self._accepted:
            return True
        while path:
            path = path.rpartition(b"/")[0]
            if path in self._accepted:
                return True
        return False

    @staticmethod
    def _is_place_of_users(path: bytes) -> bool:
        return path in _EXACT or path.startswith(_USERS_FOLDERS)

    @staticmethod
    def _same_content(entry: Entry, access: TreeAccess) -> bool:
        if entry.kind != "f":
            return True
        try:
            handle = access.open_handle(entry.path)
            if handle is None:
                return True
            with handle:
                return handle.status.st_size == entry.size and handle.digest() == entry.digest
        except (OSError, Blocked, UnreadableError):
            return True  # users replace it at this moment: theirs


def seen(path: bytes, access: TreeAccess) -> tuple[Entry | None, Stamp | None]:
    """The file as it is, and its stamp; without an entry where that cannot be read. Raises Blocked."""
    handle = access.open_handle(path)
    if handle is None:
        return None, None
    with handle:
        try:
            return handle.entry(path, ""), Stamp.of(handle.status)
        except UnreadableError:
            return None, Stamp.of(handle.status)


def _is_gone(path: bytes, access: TreeAccess) -> bool:
    """Whether there is nothing at `path`."""
    try:
        return access.status(path) is None
    except Blocked:
        return True


def is_link(path: bytes, access: TreeAccess) -> bool:
    """Whether there is a symbolic link at `path`."""
    try:
        status = access.status(path)
    except Blocked:
        return False
    return status is not None and stat.S_ISLNK(status.st_mode)


def _overrides(side: databases.SystemDatabases) -> set[bytes]:
    """Paths to which an administrator gave owner and mode with dpkg-statoverride(1)."""
    lines = side.get(databases.DPKG + b"statoverride", b"").splitlines()
    return {fields[3].strip(b"/") for line in lines if len(fields := line.split(b" ", 3)) == 4}


def _exactly(entry: Entry, now: Entry, difference: Difference) -> Difference:
    """Take back what was only suspected, or is so by the numbers of users that the tree has."""
    if Difference.OWNER in difference and (entry.uid, entry.gid) == (now.uid, now.gid):
        difference &= ~Difference.OWNER
    elif (entry.uid, entry.gid) != (now.uid, now.gid):
        difference |= Difference.OWNER
    if Difference.ATTRIBUTES in difference and entry.xattrs == now.xattrs:
        difference &= ~Difference.ATTRIBUTES
    return difference
