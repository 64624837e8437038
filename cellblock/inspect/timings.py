# SPDX-License-Identifier: Apache-2.0
"""Adds up how long builds took, by layer and by kind of step, for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cellblock.store.record import ImageRecord, LayerKind


@dataclass(frozen=True)
class Timing:
    """What was made (a layer's title, or an image's name), and the seconds of its steps, in their order.

    `kind` is None for what is of no layer.
    """

    title: str
    kind: LayerKind | None
    steps: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Of all steps."""
        return sum(self.steps.values())


def timings(records: Iterable[ImageRecord]) -> tuple[Timing, ...]:
    """Those that took longest first.

    A record names steps "LAYER: STEP", those of layers that it shares with others too; a layer is told of
    once. Other names are steps of the image itself.
    """
    kinds: dict[str, LayerKind | None] = {}
    steps: dict[str, dict[str, float]] = {}
    for record in records:
        mine = {layer.title: layer for layer in record.layers}
        told = set(steps)
        for name, seconds in record.steps.items():
            title, _, step = name.rpartition(": ")
            if title not in mine:
                title, step = record.image, name
            if title in told:
                continue
            kinds[title] = mine[title].kind if title in mine else None
            steps.setdefault(title, {})[step] = seconds
    found = (Timing(title, kinds[title], each) for title, each in steps.items())
    return tuple(sorted(found, key=lambda timing: -timing.seconds))


def step_names(found: Iterable[Timing]) -> tuple[str, ...]:
    """Names of all steps, those that took longest over everything first."""
    total: dict[str, float] = {}
    for timing in found:
        for name, seconds in timing.steps.items():
            total[name] = total.get(name, 0.0) + seconds
    return tuple(sorted(total, key=lambda name: -total[name]))
