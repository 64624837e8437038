# SPDX-License-Identifier: Apache-2.0
"""Defines what a lock says: every package of every image of a variant, by version and SHA-256.

file.py reads and writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from cellblock.cache_key import digest_of
from cellblock.lock.archives import PackageArchive

FORMAT = 1
"""Version of the lock's format; a lock of another one is refused."""


@dataclass(frozen=True)
class LockedPackage:
    """One package, exactly.

    `sha256` and `size` (bytes) are the deb's, `installed_size` (bytes) is what its files take;
    `filename` is its path below the URI of archive number `archive` of the lock. `depends` are the locked
    packages that its dependencies lead to, alternatives as "a | b". `security`: the
    archive's security suite carries this version. `images` are those that hold it, parents first.
    """

    name: str
    version: str
    architecture: str
    sha256: str
    size: int
    installed_size: int
    filename: str
    archive: int
    origin: str
    security: bool
    images: tuple[str, ...]
    depends: tuple[str, ...] = ()

    @property
    def deb(self) -> str:
        """The file name that apt gives the deb: a colon of the version is written %3a."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"


@dataclass(frozen=True)
class LockedImage:
    """One image: what it stands on, what was asked for, and all it holds, parents' packages included."""

    name: str
    parent: str | None
    requested: tuple[str, ...]
    packages: tuple[str, ...]


@dataclass(frozen=True)
class Lock:
    """The closure of a variant's images.

    `date` (RFC 3339, UTC) is the date of the newest index that was used, so a property of the archives
    and not of the clock. `tarballs`: URL -> SHA-256.
    """

    variant: str
    architecture: str
    date: str
    archives: tuple[PackageArchive, ...]
    images: Mapping[str, LockedImage]
    packages: Mapping[str, LockedPackage]
    snapshot: str | None = None
    tarballs: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @cached_property
    def packages_digest(self) -> str:
        """SHA-256 over the packages: what an image's record says of its lock."""
        return digest_of({name: package.sha256 for name, package in self.packages.items()})

    @cached_property
    def download_size(self) -> int:
        """Bytes of all debs."""
        return sum(package.size for package in self.packages.values())
