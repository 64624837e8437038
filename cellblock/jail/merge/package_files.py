# SPDX-License-Identifier: Apache-2.0
"""Finds which package owns a path, where users installed, removed or upgraded packages of their own.

planner.py asks, because package_choice.py decides for whole packages and a merge goes file by file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cellblock.jail.merge.dependencies import applies_to
from cellblock.jail.merge.package_choice import Choices
from cellblock.jail.tree.databases import INFO
from cellblock.jail.tree.dpkg_database import INFO_MEMBERS, Database, info_owner


@dataclass(frozen=True)
class Rival:
    """Two owners of one path: the users' package and the image's, which is empty for a file of no package.

    `replaces`: the users' package says that it takes the other one's files.
    """

    theirs: str
    ours: str
    replaces: bool

    @property
    def why(self) -> str:
        """The half-sentence for people."""
        if self.replaces:
            return f"users' package {self.theirs} says that it replaces this file of {self.ours}"
        ours = f"in its package {self.ours}" if self.ours else "in no package"
        return f"users' package {self.theirs} has it, and the image has another {ours}"


class PackageFiles:
    """`replaced`: path -> package of the users' that the image's takes the place of."""

    def __init__(self, choices: Choices, new: Database, tree: Database) -> None:
        self._choices, self._new, self._tree = choices, new, tree
        self.replaced: dict[bytes, str] = {}
        self._held: dict[bytes, str] = {}
        self._image: dict[bytes, str] = {}
        self._sums: dict[str, dict[bytes, str]] = {}
        special = {key for key, side in choices.side.items() if side != "image"} | choices.overridden
        for key in special:
            for database in (new, tree):
                if key in database.packages:
                    self._add(key, database)
        if self._held:
            self._release()

    def _add(self, key: str, database: Database) -> None:
        for path in database.files(key):
            if key in self._choices.overridden:
                self.replaced.setdefault(path, key)
            elif self._choices.side[key] == "tree" or database is self._new:
                self._held.setdefault(path, key)

    def _release(self) -> None:
        """Release directories of several packages, and files that moved to a package that stays.

        Of what stays held it is noted which of the image's packages have it too.
        """
        goes_on = [key for key in self._new.packages if self._choices.side.get(key) == "image"]
        others = [key for key in self._new.packages if self._choices.side.get(key) != "image"]
        for key in (*goes_on, *others):  # the first one that is noted counts
            for path in self._new.files(key):
                owner = self._held.get(path)
                if owner is None:
                    continue
                if key in goes_on and self._choices.side[owner] == "none":
                    del self._held[path]
                else:
                    self._image.setdefault(path, key)

    def holds(self, path: bytes) -> bool:
        """Whether the path, a package's file or dpkg's record of one, stays as users have it."""
        if path in self._held:
            return True
        owner = info_owner(path)
        if owner is None:
            return False
        side = self._choices.side.get(owner)
        return side == "tree" or (side == "none" and owner not in self._tree.installed)

    def users_package(self, path: bytes) -> str | None:
        """The users' package that has this path, where it is their version that goes on."""
        owner = self._held.get(path)
        if owner is None or self._choices.side[owner] != "tree" or owner not in self._tree.packages:
            return None
        return owner

    def rival(self, path: bytes) -> Rival | None:
        """The users' package that has this path, where the image has it by other means than that package.

        dpkg(1) refuses to unpack the second of two such packages, unless that one says Replaces.
        """
        theirs = self.users_package(path)
        if theirs is None:
            return None
        ours = self._image.get(path)
        if ours is None:
            return Rival(theirs, "", replaces=False)
        if self._choices.side.get(ours) != "image":
            return None  # the same package in another version, or one that does not come
        replaced = self._tree.packages[theirs].fields.get("Replaces", "")
        return Rival(theirs, ours, replaces=applies_to(replaced, self._new.packages[ours]))

    def records_of_replaced(self, names: Iterable[bytes]) -> Iterator[bytes]:
        """dpkg's records of the packages that are replaced; the tree has records of these `names`."""
        for key in self._choices.overridden:
            yield from (INFO + f"{key}.{member}".encode() for member in INFO_MEMBERS)
        for name in names:
            if info_owner(INFO + name) in self._choices.overridden:
                yield INFO + name

    def owner_of(self, path: bytes) -> bytes | None:
        """The name of the image's package that has this file."""
        for key, package in self._new.packages.items():
            if path in self._new.files(key):
                return package.name.encode()
        return None

    def md5(self, path: bytes) -> str | None:
        """Return dpkg's MD5 of a file in the users' version of a package that is replaced."""
        key = self.replaced.get(path)
        if key is None or key not in self._tree.packages or info_owner(path) is not None:
            return None
        if key not in self._sums:
            self._sums[key] = self._tree.md5(key)
        return self._sums[key].get(path)
