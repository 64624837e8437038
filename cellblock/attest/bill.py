# SPDX-License-Identifier: Apache-2.0
"""Gathers the bill of materials of an image: its packages, and the files of no package.

spdx.py and cyclonedx.py write it in their formats. It depends neither on the clock nor on the machine, so two
builds of one image give equal bills.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from cellblock import __version__
from cellblock.attest.licences import Licences, licences_of
from cellblock.attest.subject import Subject
from cellblock.debian.package_database import (
    InstalledPackage,
    copyright_of,
    installed_packages,
    is_copyright,
    is_database,
    unowned_files,
)
from cellblock.lock.model import Lock
from cellblock.machine.host import parse_os_release
from cellblock.oci.contents import Contents, ContentsReader
from cellblock.oci.layer_tar import Entry, members
from cellblock.oci.layout import Layout

TOOL, TOOL_VERSION = "cellblock", __version__

# Folders of programs and libraries. What packages' scripts leave elsewhere (/etc/shadow, /var/lib/ucf ...)
# is the state of an installation and nobody's work.
_PROGRAMS = ("usr/", "bin/", "sbin/", "lib/", "lib64/", "opt/", "out/")
# The second is what the first links to, os-release(5).
_OS_RELEASE = ("etc/os-release", "usr/lib/os-release")
_NOT_PROGRAMS = ("/__pycache__/",)


@dataclass(frozen=True)
class BilledPackage:
    """A package of the distribution. `sha256` is its deb's, when the lock of the build is known."""

    installed: InstalledPackage
    purl: str
    sha256: str | None
    licences: Licences | None


@dataclass(frozen=True)
class BilledFile:
    """A file that no package brought: compiled or laid over by an image's definition. `path` is absolute."""

    path: str
    size: int
    sha1: str
    sha256: str


@dataclass(frozen=True)
class Bill:
    """Of one image. `created` is in seconds since the epoch; `distribution` as in "debian-13", or ""."""

    subject: Subject
    purl: str
    distribution: str
    created: int
    packages: tuple[BilledPackage, ...]
    files: tuple[BilledFile, ...]


def bill_of(
    subject: Subject, lock: Lock | None = None, created: int = 0, reader: ContentsReader | None = None
) -> Bill:
    """Read an image's packages and files. `reader` is one made by `bill_reader`, to share among images.

    Raises MalformedImage when the image cannot be read.
    """
    contents = (reader or bill_reader(subject.layout)).image(subject.image)
    release = parse_os_release((contents.read("etc/os-release") or b"").decode("utf-8", "replace"))
    namespace, version = release.get("ID", ""), release.get("VERSION_ID", release.get("VERSION_CODENAME", ""))
    distribution = f"{namespace}-{version}".strip("-")
    digests = _deb_digests(lock)
    packages = []
    for each in installed_packages(contents):
        text = copyright_of(contents, each)
        packages.append(
            BilledPackage(
                each,
                _deb_purl(each, namespace or "debian", distribution),
                digests.get((each.name, each.version, each.architecture)),
                licences_of(text) if text is not None else None,
            )
        )
    return Bill(
        subject, _image_purl(subject), distribution, created, tuple(packages), _files(subject, contents)
    )


def bill_reader(layout: Layout) -> ContentsReader:
    """A reader that keeps what bills are made of."""
    return ContentsReader(layout, keep=_keep)


def _keep(entry: Entry) -> bool:
    return is_database(entry) or is_copyright(entry) or entry.path in _OS_RELEASE


def _deb_digests(lock: Lock | None) -> Mapping[tuple[str, str, str], str]:
    packages = lock.packages.values() if lock is not None else ()
    return {(each.name, each.version, each.architecture): each.sha256 for each in packages}


def _deb_purl(package: InstalledPackage, namespace: str, distribution: str) -> str:
    """Package URL of the type deb (purl-spec)."""
    from packageurl import PackageURL

    qualifiers = {"arch": package.architecture, **({"distro": distribution} if distribution else {})}
    return PackageURL("deb", namespace, package.name, package.version, qualifiers).to_string()


def _image_purl(subject: Subject) -> str:
    """Package URL of the type oci: its version is the manifest's digest."""
    from packageurl import PackageURL

    platform = subject.image.configuration.platform
    qualifiers = {"arch": platform.architecture, "tag": subject.variant}
    return PackageURL("oci", None, subject.name, subject.image.digest, qualifiers).to_string()


def _files(subject: Subject, contents: Contents) -> tuple[BilledFile, ...]:
    wanted = {
        entry.path: entry
        for entry in unowned_files(contents)
        if entry.path.startswith(_PROGRAMS) and not any(part in entry.path for part in _NOT_PROGRAMS)
    }
    found: dict[str, BilledFile] = {}
    for number in sorted({entry.layer for entry in wanted.values()}):
        blob = subject.layout.blob(contents.layers[number].descriptor.digest)
        for entry, stream in members(blob, number):
            if stream is None or entry.path not in wanted or wanted[entry.path].layer != number:
                continue
            # SPDX 2.3 wants SHA-1 of every file (section 8.4), as an identifier; SHA-256 is what to trust.
            sha1, sha256 = hashlib.sha1(usedforsecurity=False), hashlib.sha256()
            while chunk := stream.read(1 << 20):
                sha1.update(chunk)
                sha256.update(chunk)
            path = f"/{entry.path}"
            found[entry.path] = BilledFile(path, entry.size, sha1.hexdigest(), sha256.hexdigest())
    return tuple(found[path] for path in sorted(found))
