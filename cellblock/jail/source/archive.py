# SPDX-License-Identifier: Apache-2.0
"""Reads an OCI layout in a tar (`oci-archive:FILE`) without unpacking it, as a source of find.py."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellblock.errors import CellblockError
from cellblock.jail.source.identity import SourceIdentity, from_labels
from cellblock.jail.source.image_core import LayerBytes
from cellblock.jail.source.stream import SourceStream, part_of_file, piped
from cellblock.oci import layout_reader


@dataclass(frozen=True)
class ArchiveSource:
    """`oci-archive:FILE[:TAG]`."""

    reference: str
    path: Path
    tag: str

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Read the index, the manifest and the configuration; no layer."""
        found = layout_reader.image_of(_Members(self.path), self.tag)
        return from_labels("layout", self.reference, found.id, found.labels)

    @contextmanager
    def feed(self, note: Path) -> Iterator[SourceStream]:
        """Give each layer from its place in the file."""
        members = _Members(self.path)
        stream, layers = SourceStream(), []
        for digest in layout_reader.image_of(members, self.tag).layers:
            offset, size = members.place(f"blobs/{digest.replace(':', '/')}")
            stream.total += size

            def chunks(offset: int = offset, size: int = size) -> Iterator[bytes]:
                return part_of_file(self.path, offset, size)

            name = f"{self.reference}: {digest}"
            layers.append(LayerBytes(name, digest.removeprefix("sha256:"), piped(stream, chunks)))
        stream.layers, stream.needs = layers, stream.total
        yield stream


class _Members:
    """The positions of the files in an uncompressed tar."""

    def __init__(self, path: Path) -> None:
        self.name = f"oci-archive:{path}"
        self._path = path
        try:
            with tarfile.open(path, "r:") as archive:
                self._places = {
                    member.name.removeprefix("./"): (member.offset_data, member.size)
                    for member in archive
                    if member.isreg()
                }
        except (OSError, tarfile.TarError) as error:
            raise CellblockError(
                f"{path}: cannot read this as an OCI archive: {error}", hint="copy the archive again"
            ) from error

    def place(self, name: str) -> tuple[int, int]:
        """Return the file's offset and size in bytes."""
        try:
            return self._places[name]
        except KeyError:
            raise CellblockError(f"{self._path}: {name} is missing", hint="copy the image again") from None

    def json(self, name: str) -> dict[str, Any]:
        """Read the file as JSON."""
        offset, size = self.place(name)
        found = json.loads(b"".join(part_of_file(self._path, offset, size)))
        if not isinstance(found, dict):
            raise CellblockError(
                f"{self._path}: {name}: expected a JSON object", hint="copy the archive again"
            )
        return found
