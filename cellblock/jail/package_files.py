"""Who owns a path, where that matters to a merge: only packages of which not simply the image's goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cellblock.jail.controls import INFO
from cellblock.jail.dpkg_database import INFO_MEMBERS, Database, info_owner
from cellblock.jail.package_choice import Choices


class PackageFiles:
    """`replaced`: path -> package of the users' that the image's takes the place of."""

    def __init__(self, choices: Choices, new: Database, tree: Database) -> None:
        self._choices, self._new, self._tree = choices, new, tree
        self.replaced: dict[bytes, str] = {}
        self._held: dict[bytes, str] = {}
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
        """A directory of several packages, or a file that moved to a package which goes on, is not held."""
        for key, side in self._choices.side.items():
            if side == "image" and key in self._new.packages:
                for path in self._new.files(key):
                    owner = self._held.get(path)
                    if owner is not None and self._choices.side[owner] == "none":
                        del self._held[path]

    def holds(self, path: bytes) -> bool:
        """Whether the path, a package's file or dpkg's record of one, stays as users have it."""
        if path in self._held:
            return True
        owner = info_owner(path)
        if owner is None:
            return False
        side = self._choices.side.get(owner)
        return side == "tree" or (side == "none" and owner not in self._tree.installed)

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
        """What dpkg says of the content of a file of the users' version of a package that is replaced."""
        key = self.replaced.get(path)
        if key is None or key not in self._tree.packages or info_owner(path) is not None:
            return None
        if key not in self._sums:
            self._sums[key] = self._tree.md5(key)
        return self._sums[key].get(path)
