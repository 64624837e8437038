# SPDX-License-Identifier: Apache-2.0
"""Merges tar archives and stacks of layers in plain Python, to compare the C code's result with.

An archive is read twice: first its headers, which say what the merged tree is and which content of which
layer survives; then its content, of which only that is written. Whiteouts, opaque directories and hard
links follow the OCI image specification 1.1, "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import IO, cast

from cellblock.errors import CellblockError
from cellblock.jail.tree.entry import Entry, Kind, Xattrs, kept_xattrs, order, shown

_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_XATTR = "SCHILY.xattr."
_ACL = "SCHILY.acl."

_KINDS: dict[bytes, Kind] = {
    tarfile.DIRTYPE: "d",
    tarfile.SYMTYPE: "l",
    tarfile.FIFOTYPE: "p",
    tarfile.CHRTYPE: "c",
    tarfile.BLKTYPE: "b",
}

Inode = tuple[int, int]
"""Number of a layer, and of a member in it: two paths with one of these are hard links."""


@dataclass(frozen=True)
class Content:
    """Content of the regular file `path`. Read `size` bytes of `stream` before asking for the next.

    `data` lists (offset, length) of what is not a hole; None: all of it.
    """

    path: bytes
    size: int
    stream: IO[bytes]
    data: list[tuple[int, int]] | None


@dataclass
class _Layer:
    """What one archive adds and removes, in its own terms."""

    added: dict[bytes, tuple[Entry, Inode]] = field(default_factory=dict)
    removed: set[bytes] = field(default_factory=set)
    emptied: set[bytes] = field(default_factory=set)
    holes: dict[int, int] = field(default_factory=dict)


class Archive:
    """The tree that tar files make, laid over each other in their order.

    `entries` is that tree, sorted; `holes` the bytes of its sparse files that the archives do not hold.
    """

    def __init__(self, layers: list[Path]) -> None:
        """Read the headers of all `layers`. Raises CellblockError naming the file that is damaged."""
        self._layers = layers
        merged: dict[bytes, tuple[Entry, Inode]] = {}
        holes: list[dict[int, int]] = []
        for number, path in enumerate(layers):
            with _members(path) as members:
                layer = _read_layer(path, number, members, merged)
            merged = _merge(merged, layer)
            holes.append(layer.holes)
        _add_missing_folders(merged)
        self._wanted: list[dict[int, bytes]] = [{} for _ in layers]
        self.entries = self._sort(merged)
        self.holes = sum(
            holes[number].get(position, 0)
            for number, wanted in enumerate(self._wanted)
            for position in wanted
        )

    def _sort(self, merged: dict[bytes, tuple[Entry, Inode]]) -> list[Entry]:
        first_names: dict[Inode, bytes] = {}
        entries = []
        for path in sorted(merged, key=order):
            entry, inode = merged[path]
            if entry.kind != "d":
                first = first_names.setdefault(inode, path)
                if first != path:
                    entry = entry._replace(kind="h", target=first)
                elif entry.kind == "f":
                    self._wanted[inode[0]][inode[1]] = path
            entries.append(entry)
        return entries

    def contents(self) -> Iterator[Content]:
        """The content of every regular file among `entries`, in the order the archives hold it."""
        for path, wanted in zip(self._layers, self._wanted, strict=True):
            if not wanted:
                continue
            with _members(path) as members:
                for number, (archive, member) in enumerate(members):
                    name = wanted.get(number)
                    if name is None:
                        continue
                    stream = archive.extractfile(member)
                    assert stream is not None  # only regular files are wanted
                    data = _data(member) if member.issparse() else None
                    yield Content(name, member.size, stream, data)


def _data(member: tarfile.TarInfo) -> list[tuple[int, int]]:
    """(offset, length) of a sparse member's data; tarfile parses this but declares it otherwise."""
    return [(offset, length) for offset, length in cast("list[tuple[int, int]]", member.sparse) if length]


def _read_layer(
    path: Path,
    number: int,
    members: Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]],
    below: dict[bytes, tuple[Entry, Inode]],
) -> _Layer:
    layer = _Layer()
    for position, (_, member) in enumerate(members):
        name = _clean(path, member.name)
        folder, _, base = name.rpartition(b"/")
        if base == _OPAQUE:
            layer.emptied.add(folder)
        elif base.startswith(_WHITEOUT):
            removed = base[len(_WHITEOUT) :]
            layer.removed.add(folder + b"/" + removed if folder else removed)
        elif member.islnk():
            target = _clean(path, member.linkname)
            found = layer.added.get(target) or below.get(target)
            if found is None or found[0].kind == "d":
                raise CellblockError(
                    f"{path}: {shown(name)} is a hard link to {shown(target)}, which is no file"
                )
            layer.added[name] = (found[0]._replace(path=name), found[1])
        else:
            layer.added[name] = (_entry(path, name, member), (number, position))
            if member.issparse():
                layer.holes[position] = member.size - sum(length for _, length in _data(member))
    return layer


def _merge(below: dict[bytes, tuple[Entry, Inode]], layer: _Layer) -> dict[bytes, tuple[Entry, Inode]]:
    """Lay `layer` over `below`."""
    # A path that stops being a directory takes what was in it along.
    gone = layer.removed | {path for path, (entry, _) in layer.added.items() if entry.kind != "d"}
    if gone or layer.emptied:
        below = {path: found for path, found in below.items() if not _is_gone(path, gone, layer.emptied)}
    return {**below, **layer.added}


def _is_gone(path: bytes, gone: set[bytes], emptied: set[bytes]) -> bool:
    if path in gone:
        return True
    while path:
        path = path.rpartition(b"/")[0]
        if path in emptied or (path and path in gone):
            return True
    return False


def _add_missing_folders(merged: dict[bytes, tuple[Entry, Inode]]) -> None:
    """Add directories that no archive mentions; refuse a file below something that is none."""
    for path in list(merged):
        while path:
            path = path.rpartition(b"/")[0]
            found = merged.get(path)
            if found is None:
                merged[path] = (Entry(path, "d", 0o755, 0, 0, 0, 0), (0, -1))
            elif found[0].kind != "d":
                raise CellblockError(f"the archive has files below {shown(path)}, which is no directory")
            else:
                break


def _entry(archive: Path, name: bytes, member: tarfile.TarInfo) -> Entry:
    kind: Kind = "f" if member.isreg() else _KINDS.get(member.type, "h")
    if kind == "h":
        raise CellblockError(f"{archive}: {shown(name)} is of unknown type {member.type!r}")
    target = _bytes(member.linkname) if kind == "l" else b""
    return Entry(
        path=name,
        kind=kind,
        mode=0o777 if kind == "l" else member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        size=member.size if kind == "f" else len(target),
        mtime_ns=int(Decimal(member.pax_headers.get("mtime", str(member.mtime))) * 10**9),
        target=target,
        device=(member.devmajor, member.devminor) if kind in "cb" else (0, 0),
        xattrs=_xattrs(archive, name, member),
    )


def _xattrs(archive: Path, name: bytes, member: tarfile.TarInfo) -> Xattrs:
    headers = member.pax_headers
    if any(key.startswith(_ACL) for key in headers):
        raise CellblockError(
            f"{archive}: the ACL of {shown(name)} is stored as text, by user name, which this cannot apply",
            hint="make the tar with `tar --xattrs --xattrs-include='*'` and without --acls",
        )
    return kept_xattrs(
        (_bytes(key[len(_XATTR) :]), _bytes(value))
        for key, value in headers.items()
        if key.startswith(_XATTR)
    )


def _clean(archive: Path, name: str) -> bytes:
    """A member's name relative to the root. A name that leaves the root is an attack or a mistake."""
    parts = [part for part in _bytes(name).split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise CellblockError(f"{archive}: the name {name!r} leaves the archive's root")
    return b"/".join(parts)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@contextmanager
def _members(path: Path) -> Iterator[Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]]:
    """The members of a tar file, compressed or not, each valid until the next is asked for."""
    with _decompressed(path) as stream:
        watched = _Tail(stream)

        def members() -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
            with tarfile.open(
                fileobj=cast("IO[bytes]", watched), mode="r|", encoding="utf-8", errors="surrogateescape"
            ) as archive:
                while (member := archive.next()) is not None:
                    yield archive, member
                    archive.members = []  # type: ignore[attr-defined] # or it keeps a record of each
            watched.drain()
            if watched.tail.strip(b"\0"):
                raise CellblockError(f"{path}: the tar's end is missing: it was cut off")

        try:
            yield members()
        except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of the file system, most likely of the one written to
            raise CellblockError(f"{path}: cannot read this as a tar archive: {error}") from error


class _Tail:
    """A stream that remembers its last 1,024 bytes: zeros in every tar that was written to its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.tail = b""

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.tail = (self.tail + data)[-1024:] if len(data) < 1024 else data[-1024:]
        return data

    def drain(self) -> None:
        while self.read(1 << 20):
            pass


@contextmanager
def _decompressed(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        magic = file.read(6)
    openers: list[tuple[bytes, Callable[[Path], object]]] = [
        (b"\x1f\x8b", gzip.open),
        (b"BZh", bz2.open),
        (b"\xfd7zXZ\0", lzma.open),
    ]
    for start, opener in openers:
        if magic.startswith(start):
            with cast("IO[bytes]", opener(path)) as stream:
                yield stream
            return
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        with _unzstd(path) as stream:
            yield stream
        return
    with path.open("rb") as stream:
        yield stream


@contextmanager
def _unzstd(path: Path) -> Iterator[IO[bytes]]:
    """Python reads zstd from 3.14 on only; the program has been everywhere for long."""
    try:
        process = subprocess.Popen(
            ["zstd", "-dcq", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except FileNotFoundError:
        raise CellblockError(f"{path} is compressed with zstd", hint="apt-get install zstd") from None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield process.stdout
        if process.stdout.read(1) == b"" and process.wait() != 0:
            reason = process.stderr.read().decode(errors="replace").strip()
            raise CellblockError(f"{path}: cannot decompress: {reason}")
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()
        process.wait()
