"""Looks after the package store: what it takes, removing what was least recently used, checking all of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cellblock.events import Events, Progress
from cellblock.flock import locked
from cellblock.packages.store import SUBJECT, PackageStore

MADE = (".control", ".opened", ".files")
"""Suffixes of what is made of a deb and kept beside it."""


@dataclass(frozen=True)
class Usage:
    """What the store holds: `debs` complete ones and `parts` unfinished ones, sizes in bytes.

    `oldest` is when the least recently used deb was used, in seconds since the epoch; None without debs.
    """

    debs: int
    debs_size: int
    parts: int
    parts_size: int
    oldest: float | None


@dataclass(frozen=True)
class Trimmed:
    """How many files were removed, their bytes, and the bytes that are left."""

    files: int
    freed: int
    left: int


@dataclass(frozen=True)
class Damaged:
    """A deb whose bytes no longer have the SHA-256 that is its name; it was removed."""

    name: str
    found: str


def usage(store: PackageStore) -> Usage:
    """What the store holds now."""
    debs = [(size, used) for path, size, used in _files(store) if path.suffix == ".deb"]
    parts = [size for path, size, _ in _files(store) if path.suffix == ".part"]
    oldest = min((used for _, used in debs), default=None)
    return Usage(len(debs), sum(size for size, _ in debs), len(parts), sum(parts), oldest)


def trim(store: PackageStore, max_size: int, waiting: Callable[[], None] | None = None) -> Trimmed:
    """Remove what was least recently used until at most `max_size` bytes are left.

    Waits for builds that use the store, calling `waiting` first. What was made of a deb goes with it.
    """
    with locked(store.folder / "lock", waiting=waiting):
        files = sorted(_files(store), key=lambda file: file[2])
        left = sum(size for _, size, _ in files)
        removed = freed = 0
        for path, size, _ in files:
            if left <= max_size:
                break
            _remove_made(path)
            path.unlink()
            left -= size
            freed += size
            removed += 1
        _remove_strays(store)
    return Trimmed(removed, freed, left)


def check(store: PackageStore, events: Events, waiting: Callable[[], None] | None = None) -> list[Damaged]:
    """Read all debs again; those whose bytes changed are removed, to be fetched again, and returned."""
    with locked(store.folder / "lock", waiting=waiting), events.step(SUBJECT, "check"):
        debs = [(path, size) for path, size, _ in _files(store) if path.suffix == ".deb"]
        total = sum(size for _, size in debs)
        damaged, done = [], 0
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for (path, size), found in zip(debs, pool.map(_sha256, [path for path, _ in debs]), strict=True):
                if found != path.stem:
                    _remove_made(path)
                    path.unlink()
                    damaged.append(Damaged(path.name, found))
                done += size
                events.emit(Progress(SUBJECT, done, total))
    return damaged


def _files(store: PackageStore) -> Iterator[tuple[Path, int, float]]:
    """Debs, finished or not: path, bytes with what was made of it, and when it was last used."""
    for path in store.folder.glob("sha256/*/*"):
        if path.suffix in (".deb", ".part"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue  # a fetch finished it meanwhile
            yield path, stat.st_size + sum(map(_size, map(path.with_suffix, MADE))), stat.st_mtime


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _remove_made(deb: Path) -> None:
    """Remove what was made of a deb, which can be made again."""
    for suffix in MADE:
        deb.with_suffix(suffix).unlink(missing_ok=True)


def _remove_strays(store: PackageStore) -> None:
    """Remove what was made of debs that are gone, and what a crash left half written."""
    for path in store.folder.glob("sha256/*/*"):
        suffix = path.suffix
        whole = suffix in MADE and path.with_suffix(".deb").exists()
        if suffix.startswith(MADE) and not whole:
            path.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
