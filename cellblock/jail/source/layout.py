# SPDX-License-Identifier: Apache-2.0
"""Reads an image of an OCI layout in a directory (`oci:DIR[:TAG]`), as a source of find.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail.source.identity import SourceIdentity, from_labels
from cellblock.jail.source.image_core import LayerBytes
from cellblock.jail.source.stream import SourceStream, opener
from cellblock.oci import layout_reader


@dataclass(frozen=True)
class LayoutSource:
    """An image of an OCI layout."""

    reference: str
    folder: Path
    tag: str

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Read the index, the manifest and the configuration; no layer."""
        found = layout_reader.read_image(self.folder, self.tag)
        return from_labels("layout", self.reference, found.id, found.labels)

    @contextmanager
    def feed(self, note: Path) -> Iterator[SourceStream]:
        """The layers as they lie; the core checks their digests."""
        stream, layers = SourceStream(), []
        for digest in layout_reader.read_image(self.folder, self.tag).layers:
            path = layout_reader.blob_path(self.folder, digest)
            try:
                stream.total += path.stat().st_size
            except FileNotFoundError:
                raise CellblockError(
                    f"{self.folder}: the blob {digest} is missing", hint="copy the whole layout again"
                ) from None
            layers.append(LayerBytes(str(path), digest.removeprefix("sha256:"), opener(path)))
        stream.layers, stream.needs = layers, stream.total
        yield stream
