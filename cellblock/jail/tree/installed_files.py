# SPDX-License-Identifier: Apache-2.0
"""Reads the files of a tree's packages for `jail adopt`, and tells which still have dpkg's checksums.

It is for a tree that no image made. Users may write in it meanwhile: each file is looked at by one
descriptor, and no symbolic link is followed (`access`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.databases import SystemDatabases
from cellblock.jail.tree.dpkg_database import Database, linked_folders
from cellblock.jail.tree.entry import Entry, order
from cellblock.jail.tree.file_handle import FileHandle, UnreadableError

_MOST_HASHED = 8 << 30
"""Bytes of a file that is read: no package has a larger one, and users may have."""
_NAMED = 100
"""Paths that a result names of each kind."""


@dataclass
class InstalledFiles:
    """`databases` say what is installed.

    `entries` are the root and what packages explain, in the order of a manifest.

    A file that is not what dpkg's sum says is `changed` and no entry, one that is not there `missing`. The
    first of both are named, and `n_changed` and `n_missing` count all. `size` is the sum of the entries'
    sizes, of a file with several names once.
    """

    packages: int
    databases: SystemDatabases = field(default_factory=dict, repr=False)
    entries: list[Entry] = field(default_factory=list, repr=False)
    changed: list[bytes] = field(default_factory=list)
    missing: list[bytes] = field(default_factory=list)
    n_changed: int = 0
    n_missing: int = 0
    size: int = 0

    def _note_changed(self, path: bytes) -> None:
        self.n_changed += 1
        if len(self.changed) < _NAMED:
            self.changed.append(path)

    def _note_missing(self, path: bytes) -> None:
        self.n_missing += 1
        if len(self.missing) < _NAMED:
            self.missing.append(path)


def read_installed(
    access: TreeAccess, controls: SystemDatabases, progress: Callable[[int, int], None]
) -> InstalledFiles:
    """Look at every file that a package of the tree's databases `controls` lists.

    `progress` is told how many were looked at, and of how many. Raises OSError: the tree cannot be read.
    """
    database = Database(controls, linked_folders(access))
    found = InstalledFiles(len(database.installed), controls)
    expected = _expected(database)
    first_names: dict[tuple[int, int], bytes] = {}
    for number, path in enumerate(sorted({b"", *expected}, key=order)):
        if number % 1000 == 0:
            progress(number, len(expected))
        try:
            handle = access.open_handle(path)
        except Blocked:
            handle = None
        if handle is None:
            found._note_missing(path)
            continue
        with handle:
            try:
                entry = _entry(handle, path, expected.get(path, ""))
            except UnreadableError:
                entry = None
            if entry is None:
                found._note_changed(path)
                continue
            first = path
            if entry.kind != "d" and handle.status.st_nlink > 1:
                first = first_names.setdefault((handle.status.st_dev, handle.status.st_ino), path)
        if first != path:
            entry = entry._replace(kind="h", target=first, digest="", device=(0, 0))
        elif entry.kind == "f":
            found.size += entry.size
        found.entries.append(entry)
    return found


def _expected(database: Database) -> dict[bytes, str]:
    """Path -> MD5, empty where dpkg has none, of the files of all installed packages, where they lie."""
    found: dict[bytes, str] = {}
    for key, package in database.installed.items():
        sums = database.md5(key)
        for path, digest in _lying(database, package.name, database.files(key), sums):
            if digest or path not in found:
                found[path] = digest
    return found


def _lying(
    database: Database, package: str, paths: Iterator[bytes], sums: dict[bytes, str]
) -> Iterator[tuple[bytes, str]]:
    """The package's paths and sums, with its diverted files where they were diverted to (dpkg-divert(1))."""
    for path in paths:
        yield database.place(path, package.encode()), sums.get(path, "")


def _entry(handle: FileHandle, path: bytes, md5: str) -> Entry | None:
    """The file's entry; None where it is not what its package brought. Raises UnreadableError."""
    if handle.kind == "f":
        digests = handle.digests("sha256", "md5", most=_MOST_HASHED)
        return handle.entry(path, digests[0]) if digests and md5 in ("", digests[1]) else None
    entry = handle.entry(path)
    if entry is None or md5:  # a sum is of a file
        return None
    # Users make files in an image's directories: its time tells that later.
    return entry._replace(mtime_ns=handle.status.st_mtime_ns)
