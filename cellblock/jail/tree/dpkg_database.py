"""Reads dpkg's database: installed packages and their files (dpkg(1), deb-control(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from cellblock.jail.tree.databases import INFO, STATUS, SystemDatabases

_FIELD = re.compile(rb"^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t].*)*)", re.MULTILINE)

INFO_MEMBERS = (
    *("list", "md5sums", "conffiles", "triggers", "shlibs", "symbols", "templates", "config"),
    *("preinst", "postinst", "prerm", "postrm"),
)
"""What dpkg keeps of a package in its info directory: deb(5) and deb-conffiles(5) to deb-triggers(5)."""


@dataclass(frozen=True)
class Package:
    """One stanza of the status file. `key` is the name as dpkg's info files have it."""

    key: str
    stanza: bytes = field(repr=False)

    @cached_property
    def fields(self) -> dict[str, str]:
        """Name -> value of each field."""
        return {
            name.decode("ascii"): value.decode("utf-8", "surrogateescape")
            for name, value in _FIELD.findall(self.stanza)
        }

    @property
    def name(self) -> str:
        """The package's name without an architecture."""
        return self.fields["Package"]

    @property
    def version(self) -> str:
        """The version, or nothing."""
        return self.fields.get("Version", "")

    @property
    def is_installed(self) -> bool:
        """Whether it is there in full; `rc` (only its configuration is left) is not."""
        return self.fields.get("Status", "").endswith(" installed")

    @property
    def is_held(self) -> bool:
        """Whether somebody told dpkg to leave it as it is."""
        return self.fields.get("Status", "").startswith("hold ")

    @cached_property
    def conffiles(self) -> dict[bytes, str]:
        """Path -> MD5 of the conffiles as the package brought them."""
        lines = self.fields.get("Conffiles", "").splitlines()
        rows = [line.split() for line in lines if line.strip()]
        return {
            row[0].encode("utf-8", "surrogateescape").lstrip(b"/"): row[1] for row in rows if len(row) >= 2
        }


class Database:
    """The packages that a set of databases describes."""

    def __init__(self, databases: SystemDatabases, aliases: dict[bytes, bytes]) -> None:
        """`aliases` maps a top directory that is a link to what it leads to: b"bin" -> b"usr/bin"."""
        self.databases = databases
        self._aliases = aliases
        self.packages = {package.key: package for package in _stanzas(databases.get(STATUS, b""))}

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


def _stanzas(text: bytes) -> Iterator[Package]:
    for stanza in split(text):
        fields = dict(_FIELD.findall(stanza))
        name = fields.get(b"Package", b"").decode("utf-8", "surrogateescape")
        if not name:
            continue
        architecture = fields.get(b"Architecture", b"").decode("utf-8", "surrogateescape")
        is_same = fields.get(b"Multi-Arch", b"") == b"same"
        yield Package(f"{name}:{architecture}" if is_same else name, stanza)


def split(text: bytes) -> list[bytes]:
    """The stanzas of a file, each ending with one newline."""
    return [stanza.strip(b"\n") + b"\n" for stanza in re.split(rb"\n\n+", text) if stanza.strip()]
