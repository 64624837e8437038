# SPDX-License-Identifier: Apache-2.0
"""Reads dpkg's database from an image's layers: its packages, their files, and their copyright files.

status.py reads the status file in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cellblock.debian.status import packages_of
from cellblock.oci.contents import Contents
from cellblock.oci.layer_tar import Entry

STATUS = "var/lib/dpkg/status"
_LIST = re.compile(r"var/lib/dpkg/info/[^/]+\.list")
_COPYRIGHT = re.compile(r"usr/share/doc/([^/]+)/copyright")
_SOURCE = re.compile(r"(?P<name>\S+)(?:\s+\((?P<version>\S+)\))?")


@dataclass(frozen=True)
class InstalledPackage:
    """A package that dpkg calls installed, and the source package it was built from."""

    name: str
    version: str
    architecture: str
    source: str
    source_version: str
    maintainer: str = ""
    homepage: str = ""

    @property
    def upstream(self) -> str:
        """The version without Debian's epoch and revision: `24.11.5` of `1:24.11.5-4+b1`."""
        return self.version.rpartition(":")[2].rpartition("-")[0] or self.version


def is_database(entry: Entry) -> bool:
    """Whether a reader must keep a file to read the database from it."""
    return entry.path == STATUS or _LIST.fullmatch(entry.path) is not None


def is_copyright(entry: Entry) -> bool:
    """Whether a file says under which licences a package is."""
    return _COPYRIGHT.fullmatch(entry.path) is not None


def installed_packages(contents: Contents) -> tuple[InstalledPackage, ...]:
    """Sorted by name; none when the image holds no database (only copied files, say)."""
    status = contents.read(STATUS)
    if status is None:
        return ()
    found = []
    for package in packages_of(status):
        # Deinstalled packages keep a stanza while their configuration is there.
        if not package.is_installed:
            continue
        source = _SOURCE.match(package.line("Source", package.name))
        assert source is not None  # neither is empty
        found.append(
            InstalledPackage(
                package.name,
                package.line("Version"),
                package.line("Architecture", "all"),
                source["name"],
                source["version"] or package.line("Version"),
                package.line("Maintainer"),
                package.line("Homepage"),
            )
        )
    return tuple(sorted(found, key=lambda package: (package.name, package.architecture)))


def copyright_of(contents: Contents, package: InstalledPackage) -> str | None:
    """The text of a package's copyright file (Debian policy 12.5); None when there is none."""
    data = contents.read(f"usr/share/doc/{package.name}/copyright")
    return None if data is None else data.decode("utf-8", "replace")


def unowned_files(contents: Contents) -> Iterator[Entry]:
    """Regular files that no package brought, sorted: copied in, compiled, or made while installing."""
    owned = _owned_paths(contents)
    for path, entry in contents.entries.items():
        if entry.kind == "file" and path not in owned:
            yield entry


def _owned_paths(contents: Contents) -> set[str]:
    """Where packages' files are: their lists name them by directories that may be links (/bin)."""
    owned: set[str] = set()
    folders: dict[str, str] = {}
    for path in contents.entries:
        data = contents.read(path) if _LIST.fullmatch(path) else None
        for line in (data or b"").decode("utf-8", "surrogateescape").splitlines():
            folder, _, name = line.strip("/").rpartition("/")
            if folder not in folders:
                folders[folder] = contents.resolve(folder) or folder
            owned.add(f"{folders[folder]}/{name}".lstrip("/"))
    return owned
