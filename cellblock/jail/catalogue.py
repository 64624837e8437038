"""Reading a source once: the manifest of its tree with all digests, its databases, and what is new of it.

Content that the volume's image does not have yet is put aside on the way, by its digest, so that an
upgrade reads its source once.
"""

from __future__ import annotations

import hashlib
import heapq
import os
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail import controls, manifest
from cellblock.jail.archive import Content
from cellblock.jail.entry import Entry, shown
from cellblock.jail.source import Opened

_CHUNK = 1 << 20
_IN_MEMORY = 8 << 20
_PART = 100_000
_HOLE = bytes(64 << 10)
_ROOT_MODE = 0o755


class KnownDigests:
    """The digests of a manifest's files, in 8 bytes each."""

    def __init__(self, path: Path | None) -> None:
        # Sorted in parts, for a list of millions of Python's numbers takes five times the memory of these.
        parts = [array("Q")]
        if path is not None:
            with path.open("rb") as file:
                for line in file:
                    if line[:2] == b"f ":
                        parts[-1].append(int(line.split(b" ", 7)[6][:16], 16))
                        if len(parts[-1]) == _PART:
                            parts.append(array("Q"))
        self._sorted = array("Q", heapq.merge(*(array("Q", sorted(part)) for part in parts)))

    def __contains__(self, digest: str) -> bool:
        value = int(digest[:16], 16)
        place = bisect_left(self._sorted, value)
        return place < len(self._sorted) and self._sorted[place] == value


@dataclass(frozen=True)
class Catalogue:
    """A source as read: `manifest` is a file in the folder given, `blobs` a folder there of new content."""

    manifest: Path
    manifest_sha256: str
    entries: int
    bytes: int
    controls: controls.Controls
    blobs: Path


class Blobs:
    """Content by digest, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fsencode(folder)
        folder.mkdir(exist_ok=True, mode=0o700)

    @property
    def folder(self) -> bytes:
        """Where they all are."""
        return self._folder

    def path(self, digest: str) -> bytes:
        """Where the content is, or would be."""
        return self._folder + b"/" + digest.encode()

    def add(self, digest: str, content: Iterable[bytes]) -> None:
        """Put content aside, once; blocks of zeros become holes."""
        path = self.path(digest)
        if os.path.lexists(path):
            return
        # Several threads may come with the same content: each has its own name until it is whole.
        temporary = path + b".%x" % id(content)
        with open(temporary, "xb") as file:  # noqa: PTH123 - pathlib knows no paths of bytes
            for data in content:
                for start in range(0, len(data), len(_HOLE)):
                    block = data[start : start + len(_HOLE)]
                    if block == _HOLE:
                        file.seek(len(block), os.SEEK_CUR)
                    else:
                        file.write(block)
            file.truncate()
        os.rename(temporary, path)  # noqa: PTH104

    def missing(self, digests: Collection[str]) -> set[str]:
        """Those of `digests` that are not here."""
        return {digest for digest in digests if not os.path.lexists(self.path(digest))}


def read(opened: Opened, folder: Path, known: KnownDigests | None, jobs: int) -> Catalogue:
    """Read all of a source. With `known`, content of other digests is kept in `folder`/blobs."""
    blobs = Blobs(folder / "blobs")
    kept: dict[bytes, bytes] = {}
    digests: dict[bytes, str] = {}

    def take(path: bytes, size: int, content: Iterable[bytes]) -> None:
        digest, whole = _digest(size, content)
        digests[path] = digest
        if controls.is_control(path):
            kept[path] = b"".join(whole or ())
        if known is not None and digest not in known:
            if whole is None:
                raise AssertionError("large content is put aside by its own way")
            blobs.add(digest, whole)

    def take_large(path: bytes, again: Iterable[bytes], content: Iterable[bytes]) -> None:
        digest, _ = _digest(_IN_MEMORY + 1, content)
        digests[path] = digest
        if known is not None and digest not in known:
            blobs.add(digest, again)

    if opened.directory is not None:
        _read_directory(opened, opened.directory, jobs, take, take_large)
    else:
        _read_archive(opened, blobs, known, digests, take)
    entries = opened.entries
    if not entries or entries[0].path:
        entries = [Entry(b"", "d", _ROOT_MODE, 0, 0, 0, 0), *entries]
    # As assemble does: the top is root's alone to write, or the jail's plugin refuses it.
    entries = [entries[0]._replace(mode=_ROOT_MODE, uid=0, gid=0), *entries[1:]]
    path = folder / "manifest"
    digest = manifest.write(
        path, (one._replace(digest=digests[one.path]) if one.kind == "f" else one for one in entries)
    )
    total = sum(entry.size for entry in entries if entry.kind == "f")
    return Catalogue(path, digest, len(entries), total, kept, folder / "blobs")


def fetch(opened: Opened, catalogue: Catalogue, wanted: set[str], jobs: int) -> None:
    """Put aside content that `read` passed over because the image's old tree had it too."""
    blobs = Blobs(catalogue.blobs)
    paths: dict[bytes, str] = {}
    for entry in manifest.read(catalogue.manifest):
        if entry.kind == "f" and entry.digest in wanted:
            wanted.discard(entry.digest)
            paths[entry.path] = entry.digest
    if opened.directory is not None:
        root = opened.directory
        with ThreadPoolExecutor(jobs) as pool:
            jobs_done = [
                pool.submit(blobs.add, digest, _chunks(root + b"/" + path)) for path, digest in paths.items()
            ]
            for job in jobs_done:
                job.result()
    elif opened.archive is not None:
        for content in opened.archive.contents():
            if content.path in paths:
                blobs.add(paths[content.path], _stream(content))


def _read_directory(opened: Opened, root: bytes, jobs: int, take: object, take_large: object) -> None:
    assert callable(take)
    assert callable(take_large)

    def one(entry: Entry) -> None:
        path = root + b"/" + entry.path
        if entry.size > _IN_MEMORY:
            take_large(entry.path, _chunks(path), _chunks(path))
        else:
            take(entry.path, entry.size, _chunks(path))
        status = os.lstat(path)
        if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
            raise CellblockError(
                f"{shown(entry.path)} changed in the source while it was read; nothing was changed",
                hint="run this again when nobody writes to the source",
            )

    files = (entry for entry in opened.entries if entry.kind == "f")
    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(one, files):
            pass


def _read_archive(
    opened: Opened, blobs: Blobs, known: KnownDigests | None, digests: dict[bytes, str], take: object
) -> None:
    assert opened.archive is not None
    assert callable(take)
    for content in opened.archive.contents():
        if content.size <= _IN_MEMORY:
            take(content.path, content.size, _stream(content))
            continue
        # Too large for memory, and there is no second look at a stream: written first, judged afterwards.
        total = hashlib.sha256()
        name = "large"
        blobs.add(name, _hashed(total, _stream(content)))
        digest = total.hexdigest()
        digests[content.path] = digest
        if known is not None and digest not in known:
            os.rename(blobs.path(name), blobs.path(digest))  # noqa: PTH104
        else:
            os.unlink(blobs.path(name))  # noqa: PTH108


def _hashed(total: hashlib._Hash, content: Iterable[bytes]) -> Iterator[bytes]:
    for data in content:
        total.update(data)
        yield data


def _digest(size: int, content: Iterable[bytes]) -> tuple[str, list[bytes] | None]:
    """The digest of content, and the content itself when it is small."""
    total, whole = hashlib.sha256(), list[bytes]()
    for data in content:
        total.update(data)
        if size <= _IN_MEMORY:
            whole.append(data)
    return total.hexdigest(), whole if size <= _IN_MEMORY else None


def _chunks(path: bytes) -> Iterator[bytes]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while data := os.read(descriptor, _CHUNK):
            yield data
    finally:
        os.close(descriptor)


def _stream(content: Content) -> Iterator[bytes]:
    left = content.size
    while left > 0:
        data = content.stream.read(min(_CHUNK, left))
        if not data:
            raise CellblockError(f"the source's {shown(content.path)} ends too early: it is damaged")
        left -= len(data)
        yield data
