# SPDX-License-Identifier: Apache-2.0
"""Reads an image's files and packages once, for all checks of an audit."""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.attest.subject import Subject
from cellblock.debian.package_database import InstalledPackage, installed_packages, is_database
from cellblock.oci.contents import Contents, ContentsReader
from cellblock.oci.layer_tar import Entry

_ACCOUNTS = ("etc/passwd", "etc/group")


@dataclass(frozen=True)
class InspectedImage:
    """An image under audit."""

    subject: Subject
    contents: Contents
    packages: tuple[InstalledPackage, ...]

    def layer_of(self, entry: Entry) -> str:
        """Digest of the layer that brought an entry."""
        return self.contents.layers[entry.layer].descriptor.digest


def keep(entry: Entry) -> bool:
    """The files that checks read: dpkg's database, accounts, and SPANK plugins."""
    return is_database(entry) or entry.path in _ACCOUNTS or is_spank_plugin(entry.path)


def is_spank_plugin(path: str) -> bool:
    """Whether a file is named as Slurm's SPANK plugins are."""
    name = path.rpartition("/")[2]
    return name.startswith("spank_") and name.endswith(".so")


def inspect_image(subject: Subject, reader: ContentsReader) -> InspectedImage:
    """Read an image. Raises MalformedImage."""
    contents = reader.image(subject.image)
    return InspectedImage(subject, contents, installed_packages(contents))
