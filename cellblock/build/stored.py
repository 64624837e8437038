"""Finds layers that are there already, by what they are made of."""

from __future__ import annotations

import json
import shutil
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
    try:
        # After a power failure a blob can be there without its end.
        whole = layout.blob(record.digest).stat().st_size == record.size
    except OSError:
        return None
    return replace(record, title=node.title, kind=node.kind) if whole else None


def collect_layers(folder: Path, layout: Layout) -> None:
    """Remove from the cache `folder` records of layers whose blob is gone, and trees without a record.

    Call it while nobody builds (`Layout.collect_garbage`). A tree that is needed again is unpacked.
    """
    known = set()
    for path in (folder / "layers").glob("*"):
        try:
            record = record_of(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            record = None
        if path.suffix == ".json" and record and layout.has(record.digest):
            known.add(path.stem)
        else:
            path.unlink(missing_ok=True)
    for path in (folder / "trees").glob("*"):
        if path.name not in known:
            shutil.rmtree(path, ignore_errors=True)
    for path in (folder / "locks").glob("layer-*"):
        if path.name.removeprefix("layer-") not in known:
            path.unlink(missing_ok=True)
