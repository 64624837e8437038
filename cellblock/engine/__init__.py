# SPDX-License-Identifier: Apache-2.0
"""Engines turn a recipe into an image. `Engine` is the protocol that each one fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from cellblock.engine.recipe import BuiltImage, Recipe, StepReport

__all__ = ["BuiltImage", "Engine", "Recipe", "StepReport"]


class Engine(Protocol):
    """Makes images from recipes and knows those it has. Safe to call from several threads."""

    @property
    def name(self) -> str:
        """What `--engine` calls it."""
        ...

    def images(self) -> Mapping[str, BuiltImage]:
        """All of Cellblock's images, by each of their references."""
        ...

    def build(self, recipe: Recipe, report: StepReport) -> BuiltImage:
        """Carry out `recipe` and tag the result; on any failure nothing is tagged.

        Raises StepFailed when a step fails and Interrupted after `stop`.
        """
        ...

    def tag(self, image: BuiltImage, reference: str) -> BuiltImage:
        """Give `image` one more reference, taking it from another image if need be."""
        ...

    def remove(self, reference: str) -> bool:
        """Take a reference away, and the image with its last one; False when it is in use."""
        ...

    def stop(self) -> None:
        """End what runs, remove half-built containers, refuse further builds."""
        ...

    def sweep(self) -> None:
        """Remove what killed builds left behind."""
        ...
