# SPDX-License-Identifier: Apache-2.0
"""Reads a whole source once: lists its files with digests, and takes out the databases of dpkg and accounts.

Upgrades and `jail verify` use it. The C code (`image_core`) merges layers and hashes in threads. While it
reads, it stores new content by digest, so that an upgrade need not read the source again. A layer with a
listing (`listings`) is not read at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail.source.image_core import (
    ImageError,
    LayerBytes,
    Pick,
    Summary,
    Target,
    assembling,
)
from cellblock.jail.source.known_digests import KnownDigests, records_folder
from cellblock.jail.source.listings import LayerListings
from cellblock.jail.source.stream import SourceStream
from cellblock.jail.tree import databases
from cellblock.jail.tree.manifest_index import opened


@dataclass(frozen=True)
class SourceScan:
    """The result of reading a source: `manifest` is a file, `blobs` a folder of new content."""

    manifest: Path
    manifest_sha256: str
    entries: int
    bytes: int
    databases: databases.SystemDatabases
    blobs: Path
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """How to read: with how many threads, whom to tell how many bytes were read, which layers are known.

    `keep` says that what layers say may be kept among the listings.
    """

    listings: LayerListings
    jobs: int = 8
    keep: bool = True
    progress: Callable[[int], None] = lambda read: None


class Blobs:
    """Content by digest, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fsencode(folder)
        folder.mkdir(exist_ok=True, mode=0o700)

    @property
    def folder(self) -> bytes:
        """The folder of all blobs."""
        return self._folder

    def path(self, digest: str) -> bytes:
        """Return the path of a blob, whether it exists or not."""
        return self._folder + b"/" + digest.encode()

    def missing(self, digests: Iterable[str]) -> set[str]:
        """Return those of `digests` whose content is not in the folder."""
        return {digest for digest in digests if not os.path.lexists(self.path(digest))}


def read(
    stream: SourceStream,
    folder: Path,
    reading: Reading,
    *,
    known: KnownDigests | None,
    at_hand: Mapping[bytes, bytes] | None = None,
) -> SourceScan:
    """Read all of a source that is not known; content whose digest is not among `known` is put aside.

    None: no content is. `at_hand` are databases of the volume's image: what the source has the same is taken
    from there. Raises CellblockError and OSError.
    """
    # Of what nobody wants nothing is written but the databases.
    pick = Pick(array("Q") if known is None else known, wanted=known is None, always=databases.PREFIXES)
    path = folder / "manifest"
    summary = _run(stream, folder, reading, pick, (), path)
    digests = database_digests(path)
    found = {hashlib.sha256(text).hexdigest(): text for text in (at_hand or {}).values()}
    blobs = Blobs(folder / "blobs")
    for digest in set(digests.values()) - set(found):
        if not blobs.missing([digest]):
            found[digest] = Path(os.fsdecode(blobs.path(digest))).read_bytes()
    missing = set(digests.values()) - set(found)
    if missing:
        fetch(stream, folder / "more", reading, missing)
        for digest in missing:
            found[digest] = (folder / "more/blobs" / digest).read_bytes()
        shutil.rmtree(folder / "more")
    kept = {name: found[digest] for name, digest in digests.items()}
    return SourceScan(
        path, summary.digest, summary.entries, summary.bytes, kept, folder / "blobs", stream.digests
    )


def fetch(stream: SourceStream, folder: Path, reading: Reading, wanted: Collection[str]) -> None:
    """Put content aside that `read` passed over, in `folder`/blobs. Reads the layers that may have it.

    Raises CellblockError when the source does not have it: it is not what it was.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    pick = Pick(array("Q", sorted(int(digest[:16], 16) for digest in wanted)), wanted=True)
    bare = {bytes.fromhex(digest) for digest in wanted}
    needed = [layer.digest for layer in stream.layers if reading.listings.holds(layer.digest, bare)]
    _run(stream, folder, reading, pick, [one for one in needed if one is not None], None)
    if missing := Blobs(folder / "blobs").missing(wanted):
        raise CellblockError(
            f"the source does not have the content with SHA-256 {min(missing)}; nothing was changed",
            hint="it changed since it was read; run this again, and for a repair name the very image",
        )


def _run(
    stream: SourceStream, folder: Path, reading: Reading, pick: Pick, read: Sequence[str], target: Path | None
) -> Summary:
    """Let the core read; a layer whose listing turns out not to suffice is then read itself."""
    must = set(read)
    while True:
        aside = folder / "blobs"
        shutil.rmtree(aside, ignore_errors=True) if target is not None else None
        aside.mkdir(mode=0o700, exist_ok=True)
        root = os.open(aside, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with reading.listings.joined(stream.layers, keep=reading.keep, read=must) as layers:
                return _once(stream, layers, Target(root, reading.jobs, pick=pick), reading, target)
        except ImageError as error:
            if stream.errors:
                raise stream.errors[0] from error
            layer = stream.layers[-1 - error.layer].digest if error.layer >= 0 else None
            if error.fault != "absent" or layer is None or layer in must:
                raise error.for_users("nothing was changed") from error
            must.add(layer)
        finally:
            os.close(root)


def _once(
    stream: SourceStream, layers: Sequence[LayerBytes], target: Target, reading: Reading, path: Path | None
) -> Summary:
    source = stream.directory or layers
    with assembling(source, target, reading.progress, records_folder()) as assembly:
        assembly.run()
        if stream.errors:
            raise stream.errors[0]
        return Summary(0, 0, "") if path is None else assembly.write_manifest(path)


def database_digests(path: Path) -> dict[bytes, str]:
    """The digests of the databases, by path; a name that is another's file's has that one's."""
    found: dict[bytes, str] = {}
    links: dict[bytes, bytes] = {}
    with opened(path) as index:
        for entry in (entry for folder in (b"etc", b"var") for entry in index.below(folder)):
            if not databases.is_database(entry.path):
                continue
            if entry.kind == "f":
                found[entry.path] = entry.digest
            elif entry.kind == "h":
                links[entry.path] = entry.target
    if links:
        with opened(path) as index:
            for name, first in links.items():
                named = index.entry(first)
                if named is not None and named.kind == "f":
                    found[name] = named.digest
    return found
