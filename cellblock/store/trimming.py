# SPDX-License-Identifier: Apache-2.0
"""Removes what was not used for longest, until the rest of the cache fits (`build.py cache trim`).

Builds wait meanwhile (`Layout.alone`, the store's lock). A removal that is interrupted leaves a correct
cache: a name is removed before its blobs, and a tree is renamed before it is removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cellblock.files.flock import locked
from cellblock.packages.store import PackageStore
from cellblock.store.failed_roots import remove_kept_roots
from cellblock.store.inventory import (
    KINDS,
    MADE,
    CacheItem,
    ItemKind,
    items,
    layer_ids,
    layout_of,
    list_parts,
    remove_deb,
    size_of,
    sizes,
    store_of,
)
from cellblock.store.layer_records import collect_layers
from cellblock.store.work_folders import WorkFolders


@dataclass(frozen=True)
class Trimmed:
    """What went: how many things of each kind, and bytes; and the bytes that are left."""

    removed: Mapping[ItemKind, int]
    freed: int
    left: int


def trim(cache: Path, max_size: int, waiting: Callable[[], None] | None = None) -> Trimmed:
    """Have at most `max_size` bytes of debs, lists, trees and images below `cache`.

    Waits for builds, calling `waiting` first. Raises MalformedImage when the index of images cannot be read.
    """
    layout, store = layout_of(cache), store_of(cache)
    with layout.alone(waiting), locked(store.folder / "lock", waiting=waiting):
        # What nothing leads to, or a crash left, goes in any case.
        WorkFolders(cache / "work").sweep()
        remove_kept_roots(cache)
        freed = layout.remove_unreached()
        collect_layers(cache, layout)
        _remove_strays(store)
        things = sorted(items(cache), key=lambda thing: (thing.used, KINDS.index(thing.kind)))
        run = _Trim(cache, things)
        removed: Counter[ItemKind] = Counter()
        for thing in things:
            if run.total <= max_size:
                break
            if run.remove(thing):
                removed[thing.kind] += 1
        layout.remove_unreached()
        collect_layers(cache, layout)
        return Trimmed(removed, freed + run.freed, run.total)


class _Trim:
    """Removes things, and knows what is left: images share blobs, trees go with their layer."""

    def __init__(self, cache: Path, things: list[CacheItem]) -> None:
        self._layout = layout_of(cache)
        self._work = WorkFolders(cache / "work")
        self._needed = Counter(digest for thing in things for digest in thing.blobs)
        self._ids = layer_ids(cache)
        self._trees = {thing.name: thing for thing in things if thing.kind == "tree"}
        self.total = sum(sizes(things, self._layout).values())
        self.freed = 0

    def remove(self, thing: CacheItem) -> bool:
        """False when it went before, with another."""
        if thing.kind == "image":
            self._layout.untag(thing.name.split())
            for digest in thing.blobs:
                self._needed[digest] -= 1
                if not self._needed[digest]:
                    self._count(size_of(self._layout.blob(digest)))
                    for name in self._ids.get(digest, ()):
                        if name in self._trees:
                            self.remove(self._trees[name])
        elif thing.kind == "tree":
            if not self._trees.pop(thing.name, None):
                return False
            self._work.discard(thing.path)
            self._count(thing.size)
        elif thing.kind == "lists":
            with locked(thing.path / "lock"):
                for part in list_parts(thing.path):
                    self._work.discard(part)
            self._count(thing.size)
        else:
            remove_deb(thing.path)
            self._count(thing.size)
        return True

    def _count(self, size: int) -> None:
        self.total -= size
        self.freed += size


def _remove_strays(store: PackageStore) -> None:
    """Remove what was made of debs that are gone, and what a crash left half written."""
    for path in store.folder.glob("sha256/*/*"):
        whole = path.suffix in MADE and path.with_suffix(".deb").exists()
        if path.suffix.startswith(MADE) and not whole:
            path.unlink(missing_ok=True)
