# SPDX-License-Identifier: Apache-2.0
"""Gathers the graph of images, with the sizes of those built, as data that graph_svg and graph_text draw."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from cellblock.definition import Image
from cellblock.graph import build_order
from cellblock.store.record import ImageRecord
from cellblock.text.amount import amount_of_bytes

STALE = ", of earlier inputs"
"""Behind what is said of an image that a build would make anew."""

EdgeKind = Literal["from", "artifacts", "compiled in"]
"""from: stands on its layers; artifacts: copies files out of it; compiled in: the toolchain."""


@dataclass(frozen=True)
class BuiltSize:
    """What was built: bytes as pulled and as unpacked; `own` bytes are in no image that it stands on."""

    layers: int
    size: int
    uncompressed: int
    own: int

    @property
    def text(self) -> str:
        """For example `4 layers, 45.1 MB (6.2 MB own)`."""
        own = f" ({amount_of_bytes(self.own)} own)" if self.own != self.size else ""
        return f"{self.layers} layer{'s' * (self.layers != 1)}, {amount_of_bytes(self.size)}{own}"


@dataclass(frozen=True)
class GraphNode:
    """An image; `built` is None when no build of it is known, `stale`: its inputs have changed since."""

    name: str
    summary: str
    built: BuiltSize | None
    stale: bool = False

    @property
    def text(self) -> str:
        """The second line under its name."""
        if not self.built:
            return "not built here"
        return self.built.text + (STALE if self.stale else "")


@dataclass(frozen=True)
class GraphEdge:
    """`end` needs `start`."""

    start: str
    end: str
    kind: EdgeKind


@dataclass(frozen=True)
class ImageGraph:
    """The images of a variant, each after what it needs."""

    variant: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]


def image_graph(
    variant: str,
    images: Mapping[str, Image],
    records: Mapping[str, ImageRecord],
    stale: Collection[str] = (),
) -> ImageGraph:
    """The graph of all `images`; `records` are those that exist of that variant, by image.

    `stale` are those of them whose inputs have changed since (`cellblock.build.outdated_images`).

    Raises DefinitionError for a cycle.
    """
    order = build_order(images, images)
    nodes = tuple(
        GraphNode(
            image.name,
            image.fields.summary,
            _built(image.name, images, records),
            image.name in stale and image.name in records,
        )
        for image in order
    )
    edges = tuple(
        GraphEdge(need, image.name, _kind(image, need)) for image in order for need in image.needs()
    )
    return ImageGraph(variant, nodes, edges)


def _kind(image: Image, need: str) -> EdgeKind:
    if need == image.fields.parent:
        return "from"
    if image.fields.build and need == image.fields.build.toolchain:
        return "compiled in"
    return "artifacts"


def _built(name: str, images: Mapping[str, Image], records: Mapping[str, ImageRecord]) -> BuiltSize | None:
    record = records.get(name)
    if record is None:
        return None
    parent = images[name].fields.parent
    below = {layer.digest for layer in records[parent].layers} if parent and parent in records else set()
    return BuiltSize(
        len(record.layers),
        sum(layer.size for layer in record.layers),
        sum(layer.uncompressed for layer in record.layers),
        sum(layer.size for layer in record.layers if layer.digest not in below),
    )
