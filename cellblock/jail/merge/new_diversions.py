# SPDX-License-Identifier: Apache-2.0
"""Follows a diversion that only the image has (dpkg-divert(1)), of a file whose package stays the users'.

The merged tree has the record of the diversion, and dpkg writes the package's file elsewhere from then on. So
the file has to move there, and the image's file to take its place: left alone, it would never be upgraded.
"""

from __future__ import annotations

import hashlib
import os

from cellblock.jail.merge.package_files import PackageFiles
from cellblock.jail.merge.three_way import Outcome, content
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.dpkg_database import Database
from cellblock.jail.tree.entry import Entry
from cellblock.jail.tree.file_handle import UnreadableError

_MOST_MOVED = 64 << 20
"""Bytes of a file that is moved, by way of memory. For a larger one the image's version is put there."""


class NewDiversions:
    """The diversions of `new` that neither `base` nor `tree` has, of files in the users' packages."""

    def __init__(self, base: Database, new: Database, tree: Database, owned: PackageFiles) -> None:
        self._tree = tree
        self._packages: dict[bytes, str] = {}
        self._sources: dict[bytes, bytes] = {}
        for path, (to, _) in new.diversions.items():
            package = owned.users_package(path)
            if package is not None and path not in base.diversions and path not in tree.diversions:
                self._packages[path], self._sources[to] = package, path

    def outcome(
        self, path: bytes, seen: Entry | None, new: Entry | None, access: TreeAccess
    ) -> Outcome | None:
        """What becomes of the file at a diverted path; None where `path` is no such path."""
        package = self._packages.get(path)
        if package is None or new is None:
            return None
        if content(seen) == content(new):
            return Outcome("same", seen)
        if seen is None or self._untouched(path, access) is not None:
            return Outcome("add" if seen is None else "update", new)
        why = f"the image diverts this file of the users' package {package}, and users changed it"
        return Outcome("conflict", seen, new, why)

    def moved(self, to: bytes, access: TreeAccess) -> tuple[Entry, bytes] | None:
        """The tree's own file that is to lie at `to`, and its content; None where the image's is to."""
        source = self._sources.get(to)
        found = None if source is None else self._untouched(source, access)
        return None if found is None or found[1] is None else (found[0]._replace(path=to), found[1])

    def _untouched(self, path: bytes, access: TreeAccess) -> tuple[Entry, bytes | None] | None:
        """The file at `path` as its package brought it; without content where that is too much to move."""
        wanted = self._tree.md5(self._packages[path]).get(path)
        try:
            handle = access.open_handle(path)
            if handle is None or wanted is None:
                return None
            with handle:
                if handle.kind != "f":
                    return None
                if handle.status.st_size > _MOST_MOVED:
                    digest, text = handle.digest("md5"), None
                else:
                    with os.fdopen(handle.open(), "rb") as file:
                        text = file.read(_MOST_MOVED)
                    digest = hashlib.md5(text, usedforsecurity=False).hexdigest()
                entry = handle.entry(path, "" if text is None else hashlib.sha256(text).hexdigest())
                return (entry, text) if digest == wanted and entry is not None else None
        except (Blocked, UnreadableError):
            return None
