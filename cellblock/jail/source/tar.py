# SPDX-License-Identifier: Apache-2.0
"""Reads a tar file of a root filesystem, compressed or not, as a source of find.py."""

from __future__ import annotations

import bz2
import lzma
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, cast

from cellblock.errors import CellblockError
from cellblock.files.sha256 import sha256_of_file
from cellblock.jail.source.identity import SourceIdentity
from cellblock.jail.source.image_core import LayerBytes
from cellblock.jail.source.stream import SourceStream, opener, piped

TAR_NAME = re.compile(r"\.(tar|tgz|tar\.[a-z0-9]+)$")
"""Names that mean a tar, where a source could also be the name of an image."""


@dataclass(frozen=True)
class TarSource:
    """A tar file, compressed or not."""

    reference: str
    path: Path

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Hash the file, unless it is untouched since `known` was made from it."""
        status = self.path.stat()
        stamp = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
        if known is not None and known.kind == "tar" and known.stamp == stamp:
            return replace(known, reference=self.reference)
        return SourceIdentity("tar", self.reference, "sha256:" + sha256_of_file(self.path), stamp=stamp)

    @contextmanager
    def feed(self, note: Path) -> Iterator[SourceStream]:
        """The file, or what xz and bzip2 make of it, which the core does not read itself."""
        stream = SourceStream(total=self.path.stat().st_size)
        stream.needs = stream.total
        with self.path.open("rb") as file:
            magic = file.read(6)
        how: Callable[[Path], IO[bytes]] | None = None
        if magic.startswith((b"BZh", b"\xfd7zXZ")):
            how = cast("Callable[[Path], IO[bytes]]", bz2.open if magic.startswith(b"BZh") else lzma.open)
        if how is None:
            stream.layers = [LayerBytes(str(self.path), None, opener(self.path))]
        else:
            stream.total = 0
            stream.layers = [
                LayerBytes(str(self.path), None, piped(stream, lambda: _decompressed(self.path, how)))
            ]
        yield stream


def _decompressed(path: Path, how: Callable[[Path], IO[bytes]]) -> Iterator[bytes]:
    try:
        with how(path) as stream:
            while data := stream.read(1 << 20):
                yield data
    except (EOFError, lzma.LZMAError, OSError) as error:
        raise CellblockError(
            f"{path}: cannot read this as a tar archive: {error}",
            hint=f"copy it again; `tar -tf {path}` reads all of it",
        ) from error
