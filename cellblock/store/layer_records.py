# SPDX-License-Identifier: Apache-2.0
"""Finds layers that exist already, by their keys, in records of one JSON file for each layer.

It also removes records whose layer is gone. record.py defines the record, and keeps those of images.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cellblock.oci.layout import Layout
from cellblock.store.record import LayerKind, LayerRecord, record_of
from cellblock.store.work_folders import WorkFolders


def find_layer(records: Path, layout: Layout, id_: str, title: str, kind: LayerKind) -> LayerRecord | None:
    """The record of the layer `id_` in the folder `records`, with this title; None without its blob."""
    try:
        record = record_of(json.loads((records / f"{id_}.json").read_text(encoding="utf-8")))
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
    return replace(record, title=title, kind=kind) if whole else None


def layer_records(folder: Path) -> Iterator[tuple[str, LayerRecord]]:
    """All records in `folder` that can be read, with their names."""
    for path in folder.glob("*.json"):
        try:
            record = record_of(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
        if record:
            yield path.stem, record


def collect_layers(folder: Path, layout: Layout) -> None:
    """Remove from the cache `folder` records of layers whose blob is gone, and trees without a record.

    Call it while nobody builds (`Layout.collect_garbage`). A tree that is needed again is unpacked.
    """
    known = {name for name, record in layer_records(folder / "layers") if layout.has(record.digest)}
    for path in (folder / "layers").glob("*"):
        if path.suffix != ".json" or path.stem not in known:
            path.unlink(missing_ok=True)
    work = WorkFolders(folder / "work")
    for path in (folder / "trees").glob("*"):
        if path.name not in known:
            # Half a tree under its name would be taken for a whole one.
            work.discard(path)
    for path in (folder / "locks").glob("layer-*"):
        if path.name.removeprefix("layer-") not in known:
            path.unlink(missing_ok=True)
