# SPDX-License-Identifier: Apache-2.0
"""Compares two locks and lists the packages that differ, for `build.py lock`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from cellblock.lock.model import Lock, LockedPackage
from cellblock.lock.resolve import Request

Kind = Literal["upgraded", "downgraded", "rebuilt", "added", "removed", "moved"]
"""rebuilt: the same version with other bytes; moved: only the images that hold it changed."""


@dataclass(frozen=True)
class Change:
    """One package that differs; `old` or `new` is None when it was added or removed."""

    kind: Kind
    name: str
    old: LockedPackage | None
    new: LockedPackage | None

    @property
    def security(self) -> bool:
        """Whether this brings a version that the security suite carries."""
        return self.kind in ("upgraded", "rebuilt") and self.new is not None and self.new.security

    @property
    def images(self) -> tuple[str, ...]:
        """The images that it concerns."""
        old, new = (set(one.images) if one else set[str]() for one in (self.old, self.new))
        both = self.new or self.old
        names = dict.fromkeys((*(self.old.images if self.old else ()), *(both.images if both else ())))
        return tuple(name for name in names if self.kind != "moved" or (name in old) != (name in new))


@dataclass(frozen=True)
class LockDiff:
    """All that differs: packages, and sentences about the rest (images, archives, base images, tarballs)."""

    changes: tuple[Change, ...]
    other: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.changes or self.other)


def diff(old: Lock, new: Lock) -> LockDiff:
    """What `new` changes. Dates of the archives alone are no difference."""
    changes = []
    for name in sorted(old.packages.keys() | new.packages.keys()):
        before, after = old.packages.get(name), new.packages.get(name)
        kind = _kind(before, after)
        if kind:
            changes.append(Change(kind, name, before, after))
    other = [
        *_requests_differ(old, _requests(new)),
        *_values("tarball", old.tarballs, new.tarballs),
    ]
    # Where an archive is fetched from is the machine's to choose, and no difference.
    if _suites(old) != _suites(new):
        other.append(f"archives: {_suites(old)} -> {_suites(new)}")
    if old.snapshot != new.snapshot:
        other.append(f"snapshot: {old.snapshot or 'none'} -> {new.snapshot or 'none'}")
    return LockDiff(tuple(changes), tuple(other))


def _suites(lock: Lock) -> str:
    return ", ".join(" ".join((archive.suite, *archive.components)) for archive in lock.archives)


def _requests(lock: Lock) -> dict[str, Request]:
    return {image.name: Request(image.parent, image.requested) for image in lock.images.values()}


def _requests_differ(lock: Lock, requests: Mapping[str, Request]) -> Iterable[str]:
    for name in (*requests, *(name for name in lock.images if name not in requests)):
        if name not in lock.images:
            yield f"image {name} is new"
        elif name not in requests:
            yield f"image {name} is gone"
        else:
            before, now = lock.images[name], requests[name]
            if before.parent != now.parent:
                yield f"image {name} stands on {now.parent or 'nothing'}, was {before.parent or 'nothing'}"
            for package in sorted(set(now.packages) - set(before.requested)):
                yield f"image {name} asks for {package}"
            for package in sorted(set(before.requested) - set(now.packages)):
                yield f"image {name} no longer asks for {package}"


def _values(what: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterable[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"{what} {name}: {old.get(name, 'none')} -> {new.get(name, 'none')}"


def _kind(old: LockedPackage | None, new: LockedPackage | None) -> Kind | None:
    if old is None or new is None:
        return "added" if old is None else "removed"
    if old.version != new.version:
        return "upgraded" if _is_later(new.version, old.version) else "downgraded"
    if old.sha256 != new.sha256:
        return "rebuilt"
    return "moved" if set(old.images) != set(new.images) else None


def _is_later(version: str, other: str) -> bool:
    """Whether a version is later than another; Debian's order is dpkg's to know (deb-version(7))."""
    command = ["dpkg", "--compare-versions", version, "gt", other]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
