"""What two manifests say differently, in one reading of both.

Equal lines are compared as bytes and not parsed, so that millions of files that did not change cost next
to nothing, in time and memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from cellblock.errors import CellblockError
from cellblock.jail import manifest
from cellblock.jail.entry import Entry, order

_CHUNK = 1 << 20


class Delta(NamedTuple):
    """One path's entries in the old and the new manifest; hard links are files with their digest."""

    base: Entry | None
    new: Entry | None


def check(path: Path) -> None:
    """Read a manifest once for its checksum. Raises CellblockError when it is damaged."""
    total, tail = hashlib.sha256(), b""
    try:
        with path.open("rb") as file:
            if file.read(len(manifest.HEADER)) != manifest.HEADER:
                raise CellblockError(
                    f"{path}: damaged manifest: expected {manifest.HEADER.decode().strip()!r}"
                )
            total.update(manifest.HEADER)
            while data := file.read(_CHUNK):
                data = tail + data
                # The last line stays out of the sum that it holds; no line of an `end` is longer.
                total.update(data[:-200])
                tail = data[-200:]
    except FileNotFoundError:
        raise CellblockError(f"{path} is missing", hint="was this volume made by `jail assemble`?") from None
    start = tail.rfind(b"\nend ") + 1 or (0 if tail.startswith(b"end ") else -1)
    if start < 0:
        raise CellblockError(f"{path}: damaged manifest: the `end` line is missing: the file was cut off")
    total.update(tail[:start])
    if tail[start:].split()[2:] != [total.hexdigest().encode()]:
        raise CellblockError(f"{path}: damaged manifest: its SHA-256 does not match what precedes the end")


def compare(base: Path, new: Path) -> dict[bytes, Delta]:
    """Path -> entries, of every path whose entries differ, in the manifests' order.

    Hard links whose other name changed count as different too. Raises CellblockError.
    """
    check(base)
    check(new)
    found: dict[bytes, Delta] = {}
    links: dict[bytes, tuple[Entry | None, Entry | None]] = {}
    with base.open("rb") as left, new.open("rb") as right:
        for one, other in _side_by_side(_lines(left), _lines(right)):
            if one is not None and one == other:
                if one[0] == 0x68:  # h
                    entry = manifest.parse(one)
                    links[entry.path] = (entry, entry)
                continue
            before = manifest.parse(one) if one is not None else None
            after = manifest.parse(other) if other is not None else None
            path = (before or after or _never()).path
            found[path] = Delta(before, after)
            if (before and before.kind == "h") or (after and after.kind == "h"):
                links[path] = (before, after)
    for path, pair in links.items():
        if path not in found and any(entry is not None and entry.target in found for entry in pair):
            found[path] = Delta(*pair)
    resolved = [
        _resolve(file, [one_side for delta in found.values() if (one_side := delta[side])])
        for side, file in enumerate((base, new))
    ]
    return {
        path: Delta(resolved[0].get(path, delta.base), resolved[1].get(path, delta.new))
        for path, delta in sorted(found.items(), key=lambda item: order(item[0]))
    }


def _never() -> Entry:
    raise AssertionError("one side has a line")


def look_up(path: Path, wanted: Iterable[bytes]) -> dict[bytes, Entry]:
    """The entries of some paths of a manifest; hard links as files."""
    names = {manifest.escape(one) or b"." for one in wanted}
    if not names:
        return {}
    found = {}
    with path.open("rb") as file:
        for line in _lines(file):
            if line[line.rindex(b" ") + 1 : -1] in names:
                entry = manifest.parse(line)
                found[entry.path] = entry
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
    with path.open("rb") as file:
        for line in _lines(file):
            if line[0] == 0x68:
                entry = manifest.parse(line)
                found.setdefault(entry.target, [entry.target]).append(entry.path)
    return found


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    next(file, None)  # the header
    for line in file:
        if line.startswith(b"end "):
            return
        yield line


def _key(line: bytes) -> bytes:
    name = line[line.rindex(b" ") + 1 : -1]
    return order(manifest.unescape(name))


def _side_by_side(
    left: Iterator[bytes], right: Iterator[bytes]
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Join two sorted runs of lines by path."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if one == other:
            yield one, other
            one, other = next(left, None), next(right, None)
            continue
        first = _key(one) if one is not None else None
        second = _key(other) if other is not None else None
        if first == second:
            yield one, other
            one, other = next(left, None), next(right, None)
        elif second is None or (first is not None and first < second):
            yield one, None
            one = next(left, None)
        else:
            yield None, other
            other = next(right, None)
