# SPDX-License-Identifier: Apache-2.0
"""Defines the layers that a build would make, with predicted sizes, and adds up what a node would pull.

from_build.py fills them in, and `build.py plan` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cellblock.store.record import LayerKind


@dataclass(frozen=True)
class PlannedLayer:
    """A layer to come. Sizes in bytes, None when nothing is known to predict them from.

    `key` tells layers apart; `is_built`: it is there already and its sizes are exact.
    """

    key: str
    kind: LayerKind
    title: str
    size: int | None
    uncompressed: int | None
    packages: int = 0
    is_built: bool = False


@dataclass(frozen=True)
class VariantPlan:
    """Layers of each image of a variant, the lowest first; `node`: the images that every node pulls."""

    variant: str
    images: Mapping[str, tuple[PlannedLayer, ...]]
    node: tuple[str, ...] = ("worker", "jail")

    def layers(self) -> Mapping[str, tuple[PlannedLayer, tuple[str, ...]]]:
        """Each layer once with the images that hold it, by key, in the order of the images."""
        found: dict[str, tuple[PlannedLayer, tuple[str, ...]]] = {}
        for image, layers in self.images.items():
            for layer in layers:
                held = found.get(layer.key, (layer, ()))[1]
                found[layer.key] = (layer, (*held, image))
        return found

    def pull(self, *images: str) -> tuple[int, int]:
        """Bytes to pull for `images` together, and unpacked; layers of unknown size count as nothing.

        Raises KeyError for an image that is not planned.
        """
        layers = {layer.key: layer for image in images for layer in self.images[image]}.values()
        return sum(layer.size or 0 for layer in layers), sum(layer.uncompressed or 0 for layer in layers)
