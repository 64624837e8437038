"""Finds layers that are there already, by what they are made of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from cellblock.build.nodes import Node
from cellblock.build.record import LayerRecord, record_of
from cellblock.oci.layout import Layout


def find_layer(records: Path, layout: Layout, node: Node) -> LayerRecord | None:
    """The record of a layer in the folder `records`, when its blob is in `layout`."""
    try:
        record = record_of(json.loads((records / f"{node.id}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
    if record is None:
        return None
    # Titles name images: another set of images may have made the same bytes.
    return replace(record, title=node.title, kind=node.kind) if layout.has(record.digest) else None
