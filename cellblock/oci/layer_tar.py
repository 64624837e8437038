# SPDX-License-Identifier: Apache-2.0
"""Reads the members of one layer from its blob as a stream: nothing is unpacked, and memory stays small.

A layer is a tar (POSIX pax or GNU), plain or compressed with gzip or zstd; members named `.wh.*` remove
files of lower layers (OCI image-spec 1.1, layer.md). contents.py combines the layers of an image.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple

import zstandard

from cellblock.oci.layer import open_layer
from cellblock.oci.model import MalformedImage

Kind = Literal["directory", "file", "hardlink", "symlink", "fifo", "character", "block"]

# tarfile copies what is left of its buffer at every header: 128 KiB are the fastest of 10 KiB to 1 MiB.
_BUFFER = 1 << 17
_XATTR = "SCHILY.xattr."
_KINDS: dict[bytes, Kind] = {
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "symlink",
    tarfile.LNKTYPE: "hardlink",
    tarfile.FIFOTYPE: "fifo",
    tarfile.CHRTYPE: "character",
    tarfile.BLKTYPE: "block",
}


_DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)


class Entry(NamedTuple):
    """A path of an image, with everything but its bytes.

    `path` is relative to the root and has no "./" before it; the root is "". Bytes that are no UTF-8 are
    surrogate escapes, so that `os.fsencode(path)` gives the name as it is. `mode` holds the permission
    bits alone (07777). `size` is in bytes. `target` is a symbolic link's text, or the path that a hard
    link is another name of; a hard link repeats the metadata of that file, its size too. `mtime` is in
    seconds since the epoch. `device` is (major, minor). `layer` is the number of the layer that brought
    it, from 0. `digest` is the SHA-256 of a file's contents in hexadecimal, None where it was not asked for.
    """

    path: str
    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int = 0
    mtime: float = 0
    target: str = ""
    device: tuple[int, int] = (0, 0)
    xattrs: tuple[tuple[str, bytes], ...] = ()
    layer: int = 0
    digest: str | None = None

    def xattr(self, name: str) -> bytes | None:
        """An extended attribute's value."""
        return next((value for each, value in self.xattrs if each == name), None)


class Member(NamedTuple):
    """A member of a layer: its entry, and for a regular file its contents until the next is asked for."""

    entry: Entry
    stream: FileStream | None


class FileStream:
    """A regular file's contents, from its beginning. Reading raises MalformedImage for a damaged layer."""

    def __init__(self, blob: Path, content: IO[bytes]) -> None:
        self._blob = blob
        self._content = content

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, all that are left without one; none at the end."""
        try:
            return self._content.read(size)
        except _DAMAGE as error:
            raise _damaged(self._blob, error) from error


def members(path: Path, layer: int = 0) -> Iterator[Member]:
    """The members of the layer in the file `path`, whiteouts under their own names, in its order.

    Raises MalformedImage when it is no tar, is damaged or cut off, or names something outside of the root.
    """
    try:
        with _uncompressed(path) as stream:
            with tarfile.open(
                fileobj=stream, mode="r|", bufsize=_BUFFER, encoding="utf-8", errors="surrogateescape"
            ) as archive:
                while (member := archive.next()) is not None:
                    content = archive.extractfile(member) if member.isreg() else None
                    content_stream = FileStream(path, content) if content is not None else None
                    yield Member(_entry(path, member, layer), content_stream)
                    archive.members = []  # type: ignore[attr-defined] # or it keeps a record of each
            # To the very end: a checksum stands there.
            while stream.read(_BUFFER):
                pass
    except _DAMAGE as error:
        raise _damaged(path, error) from error


@contextmanager
def _uncompressed(path: Path) -> Iterator[IO[bytes]]:
    """By its first bytes: media types are wrong in the wild, and docker has others."""
    import zstandard

    try:
        with open_layer(path) as stream:
            yield stream
    except FileNotFoundError as error:
        raise MalformedImage(f"layer {path} is not there", hint="build or copy the image again") from error
    except zstandard.ZstdError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> MalformedImage:
    return MalformedImage(f"{path}: cannot be read as a layer: {error}", hint="build or copy the image again")


def _entry(blob: Path, member: tarfile.TarInfo, layer: int) -> Entry:
    kind = "file" if member.isreg() else _KINDS.get(member.type)
    if kind is None:
        raise MalformedImage(f"{blob}: '{member.name}' is of the unknown type {member.type!r}")
    link = kind in ("symlink", "hardlink")
    target = member.linkname if link else ""
    headers = member.pax_headers
    xattrs: tuple[tuple[str, bytes], ...] = ()
    if headers:
        xattrs = tuple(
            sorted(
                (key[len(_XATTR) :], value.encode("utf-8", "surrogateescape"))
                for key, value in headers.items()
                if key.startswith(_XATTR)
            )
        )
    return Entry(
        path=_clean(blob, member.name),
        kind=kind,
        mode=member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        size=member.size if kind == "file" else 0,
        mtime=member.mtime,
        target=_clean(blob, target) if kind == "hardlink" else target,
        device=(member.devmajor, member.devminor) if kind in ("character", "block") else (0, 0),
        xattrs=xattrs,
        layer=layer,
    )


def _clean(blob: Path, name: str) -> str:
    """A name relative to the root. One that leaves the root is an attack or a mistake."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise MalformedImage(f"{blob}: the name '{name}' leaves the layer's root")
    return "/".join(parts)
