# SPDX-License-Identifier: Apache-2.0
"""Answers which packages a tree has installed, and which files are theirs, from dpkg's database (dpkg(1)).

databases.py reads the files of that database.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from cellblock.debian.status import Package, packages_of
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.databases import INFO, STATUS, SystemDatabases

INFO_MEMBERS = (
    *("list", "md5sums", "conffiles", "triggers", "shlibs", "symbols", "templates", "config"),
    *("preinst", "postinst", "prerm", "postrm"),
)
"""What dpkg keeps of a package in its info directory: deb(5) and deb-conffiles(5) to deb-triggers(5)."""


class Database:
    """The packages that a set of databases describes."""

    def __init__(self, databases: SystemDatabases, aliases: dict[bytes, bytes]) -> None:
        """`aliases` maps a top directory that is a link to what it leads to: b"bin" -> b"usr/bin"."""
        self.databases = databases
        self._aliases = aliases
        self.packages = {package.key: package for package in packages_of(databases.get(STATUS, b""))}

    @property
    def installed(self) -> dict[str, Package]:
        """The packages that are there in full."""
        return {key: package for key, package in self.packages.items() if package.is_installed}

    def files(self, key: str) -> Iterator[bytes]:
        """The paths of a package, without the directories' special names, links of / resolved."""
        for line in self.databases.get(INFO + key.encode() + b".list", b"").splitlines():
            path = line.strip(b"/")
            if path and path != b".":
                yield self.plain(path)

    def places(self, key: str) -> Iterator[bytes]:
        """Where a package's files lie: `files`, with diversions of others followed."""
        name = self.packages[key].name.encode() if key in self.packages else b""
        for path in self.files(key):
            yield self.place(path, name)

    def place(self, path: bytes, package: bytes) -> bytes:
        """Where a path of that package lies: another package may have diverted it (dpkg-divert(1))."""
        to, owner = self.diversions.get(path, (path, package))
        return path if owner == package else to

    def plain(self, path: bytes) -> bytes:
        """Replace a linked top directory of a path (/bin, /lib) by the real one."""
        top, slash, rest = path.partition(b"/")
        real = self._aliases.get(top)
        return real + slash + rest if real and slash else path

    def md5(self, key: str) -> dict[bytes, str]:
        """Path -> MD5 of a package's files, conffiles among them."""
        found = {}
        for line in self.databases.get(INFO + key.encode() + b".md5sums", b"").splitlines():
            digest, _, path = line.partition(b"  ")
            found[self.plain(path.strip(b"/"))] = digest.decode("ascii", "replace")
        if key in self.packages:
            conffiles = self.packages[key].conffiles
            found.update({self.plain(path): digest for path, digest in conffiles.items()})
        return found

    @cached_property
    def diversions(self) -> dict[bytes, tuple[bytes, bytes]]:
        """Path -> (where it is diverted to, by which package), as of dpkg-divert(1)."""
        lines = self.databases.get(b"var/lib/dpkg/diversions", b"").splitlines()
        return {
            self.plain(path.strip(b"/")): (self.plain(to.strip(b"/")), package)
            for path, to, package in zip(lines[0::3], lines[1::3], lines[2::3], strict=False)
        }


def info_owner(path: bytes) -> str | None:
    """The package that a file of dpkg's info directory belongs to."""
    if not path.startswith(INFO):
        return None
    name, dot, _ = path[len(INFO) :].rpartition(b".")
    return name.decode("utf-8", "surrogateescape") if dot else None


def linked_folders(access: TreeAccess) -> dict[bytes, bytes]:
    """Top directories that are links within the tree, and what each leads to: b"bin" -> b"usr/bin"."""
    found = {}
    for name in access.names(b""):
        target = link_target(access, name).strip(b"/")
        if target and not target.startswith(b"."):
            found[name] = target
    return found


def link_target(access: TreeAccess, path: bytes) -> bytes:
    """Read the symbolic link at `path`; empty where there is none."""
    try:
        handle = access.open_handle(path)
    except Blocked:
        return b""
    if handle is None:
        return b""
    with handle:
        return handle.target() if handle.kind == "l" else b""
