# SPDX-License-Identifier: Apache-2.0
"""Compares two manifests in one pass, for upgrades, rollbacks and `jail verify`.

Equal lines are compared as bytes and not parsed, so millions of unchanged files cost almost no time or
memory.
"""

from __future__ import annotations

import hashlib
import marshal
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cellblock.errors import CellblockError, NewerFormatError
from cellblock.jail.tree import manifest
from cellblock.jail.tree.databases import SystemDatabases
from cellblock.jail.tree.entry import Entry
from cellblock.jail.tree.manifest_index import ManifestIndex, opened, side_by_side
from cellblock.jail.tree.spooled_map import PathsStore

_CHUNK = 1 << 20


class PathDiff(NamedTuple):
    """One path's entries in the old and the new manifest; hard links are files with their digest."""

    base: Entry | None
    new: Entry | None


def check(path: Path) -> None:
    """Read a manifest once for its checksum. Raises CellblockError when it is damaged."""
    total, tail = hashlib.sha256(), b""
    try:
        with path.open("rb") as file:
            head = file.read(len(manifest.HEADER))
            if head != manifest.HEADER:
                raise _not_read(path, head + file.read(20))
            total.update(manifest.HEADER)
            while data := file.read(_CHUNK):
                data = tail + data
                # The last line stays out of the sum that it holds; no line of an `end` is longer.
                total.update(data[:-200])
                tail = data[-200:]
    except FileNotFoundError:
        raise CellblockError(f"{path} is missing", hint=manifest.DAMAGED_HINT) from None
    start = tail.rfind(b"\nend ") + 1 or (0 if tail.startswith(b"end ") else -1)
    if start < 0:
        raise CellblockError(
            f"{path}: damaged manifest: the `end` line is missing: the file was cut off",
            hint=manifest.DAMAGED_HINT,
        )
    total.update(tail[:start])
    if tail[start:].split()[2:] != [total.hexdigest().encode()]:
        raise CellblockError(
            f"{path}: damaged manifest: its SHA-256 does not match what precedes the end",
            hint=manifest.DAMAGED_HINT,
        )


def _not_read(path: Path, head: bytes) -> CellblockError:
    """The error for a manifest that begins otherwise: of a newer Cellblock's, or damaged."""
    name, mine = manifest.HEADER.decode().split()
    theirs = re.match(rf"{name} (\d+)\n".encode(), head)
    if theirs:
        return NewerFormatError(path, int(theirs[1]), mine)
    return CellblockError(f"{path}: damaged manifest: expected '{name} {mine}'", hint=manifest.DAMAGED_HINT)


@contextmanager
def checked_meanwhile(path: Path) -> Iterator[None]:
    """`check` the manifest while the block runs; what it raises is raised at the end of the block."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            check(path)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if errors:
        raise errors[0]


class ManifestDiff(PathsStore[PathDiff]):
    """Differences by path: for any number of them."""

    def __init__(self) -> None:
        super().__init__(_packed, _unpacked)


def _packed(pair: PathDiff) -> bytes:
    return marshal.dumps(tuple(None if entry is None else tuple(entry) for entry in pair))


def _unpacked(data: bytes) -> PathDiff:
    base, new = marshal.loads(data)
    return PathDiff(base and Entry._make(base), new and Entry._make(new))


def compare(base: Path, new: Path, *, checked: Collection[Path] = ()) -> ManifestDiff:
    """The entries of every path whose entries differ.

    Hard links whose other name changed count as different too. The checksums of those `checked` need no look.
    Raises CellblockError.
    """
    for side in (base, new):
        if side not in checked:
            check(side)
    found = ManifestDiff()
    links: dict[bytes, tuple[Entry | None, Entry | None]] = {}
    for one, other in side_by_side(base, new):
        before = manifest.parse(one) if one is not None else None
        after = manifest.parse(other) if other is not None else None
        path = (before or after or _never()).path
        if (before and before.kind == "h") or (after and after.kind == "h"):
            links[path] = (before, after)
        if one != other:
            found[path] = PathDiff(before, after)
    changed = {
        path
        for path, pair in links.items()
        if path in found or any(entry is not None and entry.target in found for entry in pair)
    }
    with opened(base) as old_index, opened(new) as new_index:
        for path in changed:
            before, after = links[path]
            found[path] = PathDiff(_as_file(before, old_index), _as_file(after, new_index))
    return found


def _as_file(entry: Entry | None, index: ManifestIndex) -> Entry | None:
    """Replace a hard link by the file that it is another name of."""
    if entry is None or entry.kind != "h":
        return entry
    named = index.entry(entry.target)
    return named and named._replace(path=entry.path)


def _never() -> Entry:
    raise AssertionError("one side has a line")


def look_up(path: Path, wanted: Iterable[bytes]) -> dict[bytes, Entry]:
    """The entries of some paths of a manifest; hard links as files."""
    found = {}
    with opened(path) as index:
        for name in wanted:
            entry = index.entry(name)
            if entry is not None:
                found[name] = entry
    return {**found, **_resolve(path, list(found.values()))}


def _resolve(path: Path, entries: list[Entry]) -> dict[bytes, Entry]:
    """The hard links of `entries` as files, by path."""
    links = [entry for entry in entries if entry.kind == "h"]
    if not links:
        return {}
    known = {entry.path: entry for entry in entries if entry.kind != "h"}
    missing = {entry.target for entry in links} - set(known)
    if missing:
        known |= look_up(path, missing)
    return {entry.path: known[entry.target]._replace(path=entry.path) for entry in links}


def groups(path: Path) -> dict[bytes, list[bytes]]:
    """First name -> all names, of every file of a manifest that has several."""
    found: dict[bytes, list[bytes]] = {}
    rest = b""
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            data = rest + data
            last = data.rfind(b"\n")
            # By find(), not line by line: few files have several names.
            start = data.find(b"\nh ", 0, last)
            while start >= 0:
                end = data.index(b"\n", start + 1)
                entry = manifest.parse(data[start + 1 : end])
                found.setdefault(entry.target, [entry.target]).append(entry.path)
                start = data.find(b"\nh ", end, last)
            rest = data[max(last, 0) :]
    return found


@dataclass(frozen=True)
class Image:
    """One side of a merge: the tree of an image."""

    manifest: Path
    databases: SystemDatabases
    checked: bool = False
    """Whether the manifest's checksum was just looked at, or written, by this process."""


@dataclass(frozen=True)
class Changes:
    """The differences to merge into a tree: of two images, or of a tree before and after an upgrade."""

    paths: ManifestDiff
    base: SystemDatabases
    new: SystemDatabases
    look_up: Callable[[Iterable[bytes]], dict[bytes, Entry]]
    """Entries of the new side by path, for paths that are no difference."""
    groups: Callable[[], dict[bytes, list[bytes]]]
    """Hard links of the new side: first name -> all names."""


def between_images(base: Image, new: Image) -> Changes:
    """The differences of two images."""
    return Changes(
        compare(base.manifest, new.manifest, checked=[one.manifest for one in (base, new) if one.checked]),
        base.databases,
        new.databases,
        lambda paths: look_up(new.manifest, paths),
        lambda: groups(new.manifest),
    )
