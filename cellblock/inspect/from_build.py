# SPDX-License-Identifier: Apache-2.0
"""Turns a prepared build (build/prepare.py) into what `build.py plan` shows and `build.py why` compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cellblock.build.image_plan import ImagePlan, all_inputs
from cellblock.build.layer_graph import Node
from cellblock.inspect.planned_layers import PlannedLayer, VariantPlan
from cellblock.inspect.why import InputChange, why_changed
from cellblock.store.record import ImageRecord, LayerRecord

# Measured, Debian 13: a layer's zstd is 0.32 (base, slurm, jail) or 0.34 (toolchain) of its tar; the tar is
# 0.90 to 1.01 of what dpkg calls the installed size, in base 0.65, since most documentation and locales that
# are left out are there. Debs are no measure: xz makes the jail's packages 67 MB, their layer is 92 MB.
_COMPRESSED = 0.32
_KEPT_OF_BASE = 0.65


def variant_plan(
    variant: str, plans: Mapping[str, ImagePlan], find: Callable[[Node], LayerRecord | None]
) -> VariantPlan:
    """The layers of `plans`; `find` gives the record of one that is there already."""
    layers: dict[str, PlannedLayer] = {}
    images = {}
    for name, plan in plans.items():
        chain = plan.top.chain()
        for node in chain:
            if node.id not in layers:
                layers[node.id] = _layer(node, find(node))
        images[name] = tuple(layers[node.id] for node in chain)
    return VariantPlan(variant, images)


def _layer(node: Node, record: LayerRecord | None) -> PlannedLayer:
    if record:
        return PlannedLayer(
            node.id,
            node.kind,
            node.title,
            record.size,
            record.uncompressed,
            len(node.packages),
            is_built=True,
        )
    if not node.packages:
        return PlannedLayer(node.id, node.kind, node.title, None, None)
    installed = sum(package.installed_size for package in node.packages)
    unpacked = round(installed * (_KEPT_OF_BASE if node.kind == "base" else 1))
    size = round(unpacked * _COMPRESSED)
    return PlannedLayer(node.id, node.kind, node.title, size, unpacked, len(node.packages))


def why_built(plan: ImagePlan, record: ImageRecord | None) -> tuple[InputChange, ...] | None:
    """Which inputs changed since `record`, the last build; None when there was none."""
    return None if record is None else why_changed(record.inputs, all_inputs(plan))
