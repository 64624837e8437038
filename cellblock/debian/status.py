# SPDX-License-Identifier: Apache-2.0
"""Reads dpkg's status file, which lists packages with their fields; no other module here reads it.

It works on bytes, without python-debian: a package's fields must be written back unchanged, and users write
to this file, too. python-debian guesses the encoding of a path that is not UTF-8, and takes two packages for
one after a line that says that they are signed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

_FIELD = re.compile(rb"^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t].*)*)", re.MULTILINE)


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

    def line(self, name: str, default: str = "") -> str:
        """The first line of a field as a person reads it: bytes that are no UTF-8 are replaced."""
        value = self.fields.get(name, default).partition("\n")[0].strip()
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    @property
    def name(self) -> str:
        """The package's name without an architecture."""
        return self.fields["Package"]

    @property
    def architecture(self) -> str:
        """Debian's name of its architecture, `all` among them, or nothing."""
        return self.fields.get("Architecture", "")

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


def packages_of(status: bytes) -> Iterator[Package]:
    """The packages of a status file; stanzas that name none are left out."""
    for stanza in split(status):
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
