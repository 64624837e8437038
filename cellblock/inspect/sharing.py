# SPDX-License-Identifier: Apache-2.0
"""Finds the layers that images share, and adds up what a machine pulls for several images, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cellblock.store.record import ImageRecord, LayerRecord


@dataclass(frozen=True)
class SharedLayer:
    """A layer and the images that hold it, in the order of the images given."""

    layer: LayerRecord
    images: tuple[str, ...]


@dataclass(frozen=True)
class Pull:
    """What a machine that has nothing pulls for `images`: bytes, and unpacked; each layer once."""

    images: tuple[str, ...]
    layers: tuple[SharedLayer, ...]

    @property
    def size(self) -> int:
        """Bytes to pull."""
        return sum(shared.layer.size for shared in self.layers)

    @property
    def uncompressed(self) -> int:
        """Bytes of the unpacked layers."""
        return sum(shared.layer.uncompressed for shared in self.layers)

    @property
    def saved(self) -> int:
        """Bytes that would be pulled in addition if nothing were shared."""
        return sum(shared.layer.size * (len(shared.images) - 1) for shared in self.layers)


def shared_layers(records: Iterable[ImageRecord]) -> tuple[SharedLayer, ...]:
    """All layers of `records`, each once: those of the most images first, then in the order of the images."""
    layers: dict[str, LayerRecord] = {}
    holders: dict[str, list[str]] = {}
    for record in records:
        for layer in record.layers:
            layers.setdefault(layer.digest, layer)
            if record.image not in holders.setdefault(layer.digest, []):
                holders[layer.digest].append(record.image)
    found = [SharedLayer(layer, tuple(holders[digest])) for digest, layer in layers.items()]
    return tuple(sorted(found, key=lambda shared: -len(shared.images)))


def pull(records: Mapping[str, ImageRecord], images: Sequence[str]) -> Pull | None:
    """What a machine pulls for `images`; None when one of them was not built."""
    if any(image not in records for image in images):
        return None
    return Pull(tuple(images), shared_layers(records[image] for image in images))


def bytes_in_common(one: ImageRecord, other: ImageRecord) -> int:
    """Bytes to pull of the layers that both images hold."""
    digests = {layer.digest for layer in other.layers}
    return sum({layer.digest: layer.size for layer in one.layers if layer.digest in digests}.values())
