# SPDX-License-Identifier: Apache-2.0
"""Lists what is in the cache as items that can be removed one by one, each with its size and its last use.

`build.py cache` prints them, and trimming.py chooses among them.

    debs/          packages, by SHA-256, with what was made of them: fetched again when they are needed
    lists/         package lists of a variant from given mirrors: fetched again
    trees/         layers unpacked, to make others on them: unpacked from their blobs again
    images/        an OCI layout: images, which are built again; images share blobs

What else is there (records, locks, compiled archives) is small, or costs much time and few bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellblock.launcher import up_to_date
from cellblock.oci.layout import Layout
from cellblock.oci.model import Descriptor
from cellblock.packages.store import PackageStore
from cellblock.store.layer_records import layer_records

ItemKind = Literal["lists", "tree", "deb", "image"]
"""In the order in which they go when they were used at the same time: by what it costs to have them again."""

MADE = (".control", ".opened", ".files")
"""Suffixes of what is made of a deb and kept beside it (`cellblock.packages.store`)."""

KINDS: tuple[ItemKind, ...] = ("lists", "tree", "deb", "image")


@dataclass(frozen=True)
class CacheItem:
    """One thing: its size in bytes on the disk, and when it was last used in seconds since the epoch.

    The size of an image is that of its blobs, of which others may need some.
    """

    kind: ItemKind
    name: str
    size: int
    used: float
    path: Path
    blobs: frozenset[str] = frozenset()
    """Of an image: the digests that it leads to."""


def layout_of(cache: Path) -> Layout:
    """The images of a cache."""
    return Layout(cache / "images")


def store_of(cache: Path) -> PackageStore:
    """The debs of a cache."""
    return PackageStore(cache / "debs")


def items(cache: Path) -> list[CacheItem]:
    """All things below `cache`, in no order. What goes meanwhile is left out or counted."""
    return [*_debs(cache), *_lists(cache), *_trees(cache), *images(cache)]


def sizes(things: list[CacheItem], layout: Layout) -> dict[ItemKind, int]:
    """Bytes of each kind; blobs that images share count once."""
    found: dict[ItemKind, int] = {
        kind: sum(thing.size for thing in things if thing.kind == kind) for kind in KINDS
    }
    blobs = frozenset[str]().union(*(thing.blobs for thing in things))
    found["image"] = sum(size_of(layout.blob(digest)) for digest in blobs)
    return found


def _debs(cache: Path) -> Iterator[CacheItem]:
    for path in store_of(cache).folder.glob("sha256/*/*"):
        if path.suffix in (".deb", ".part"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # a fetch finished it meanwhile
            size = status.st_size + sum(size_of(path.with_suffix(suffix)) for suffix in MADE)
            yield CacheItem("deb", path.name, size, status.st_mtime, path)


def _lists(cache: Path) -> Iterator[CacheItem]:
    for path in (cache / "lists").glob("*"):
        # Touched whenever packages are resolved (cellblock.lock.apt_root).
        used = max((each.lstat().st_mtime for each in list_parts(path)), default=None)
        if used is not None:
            yield CacheItem("lists", path.name, sum(map(size_of_tree, list_parts(path))), used, path)


def list_parts(folder: Path) -> list[Path]:
    """What is in a folder of package lists, but for its lock: somebody may be waiting for that."""
    return [path for path in folder.glob("*") if path.name != "lock"]


def _trees(cache: Path) -> Iterator[CacheItem]:
    for path in (cache / "trees").glob("*"):
        try:
            used = (cache / "layers" / f"{path.name}.json").stat().st_mtime
        except FileNotFoundError:
            used = 0.0  # its layer was forgotten, or is being made
        yield CacheItem("tree", path.name, size_of_tree(path), used, path)


def images(cache: Path) -> Iterator[CacheItem]:
    """Each image once, whatever names it has; one that lacks blobs has the others."""
    layout = layout_of(cache)
    digests: dict[str, tuple[Descriptor, list[str]]] = {}
    for name, descriptor in layout.references().items():
        digests.setdefault(descriptor.digest, (descriptor, []))[1].append(name)
    asked = up_to_date.used(str(cache))
    for digest, (descriptor, names) in digests.items():
        blobs = frozenset(layout.reached(descriptor))
        try:
            used = layout.blob(digest).stat().st_mtime
        except FileNotFoundError:
            used = 0.0
        # Asked for with nothing to do, which touches no image: all of that variant were.
        variants = {name.rpartition(":")[2].partition(".of-")[0] for name in names if ".key-" not in name}
        used = max([used, *(asked.get(variant, 0.0) for variant in variants)])
        size = sum(size_of(layout.blob(blob)) for blob in blobs)
        yield CacheItem("image", " ".join(sorted(names)), size, used, layout.blob(digest), blobs)


def layer_ids(cache: Path) -> dict[str, list[str]]:
    """Digest of a blob -> names of the trees that are that layer unpacked."""
    found: dict[str, list[str]] = {}
    for name, record in layer_records(cache / "layers"):
        found.setdefault(record.digest, []).append(name)
    return found


def remove_deb(path: Path) -> None:
    """Remove a deb, finished or not, and what was made of it."""
    remove_made(path)
    path.unlink(missing_ok=True)


def remove_made(deb: Path) -> None:
    """Remove what was made of a deb, which can be made again."""
    for suffix in MADE:
        deb.with_suffix(suffix).unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """Bytes of a file; 0 when it is gone."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def size_of_tree(folder: Path) -> int:
    """Bytes that a file, or a folder and all below it, take on the disk; one of several names counts once."""
    total = size_of(folder) if not folder.is_dir() else 0
    seen: set[int] = set()
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                        if status.st_ino in seen:
                            continue
                        seen.add(status.st_ino)
                    total += status.st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
    return total
