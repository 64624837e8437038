# SPDX-License-Identifier: Apache-2.0
"""Gathers the data of `build.py report`: layers with their parts, images, times, what a node pulls.

report_page.py makes the page of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from cellblock.debian.package_database import is_database
from cellblock.errors import CellblockError
from cellblock.inspect.image_graph import ImageGraph
from cellblock.inspect.layer_bytes import Part, parts_of
from cellblock.inspect.owners import owners
from cellblock.inspect.sharing import Pull, SharedLayer, pull, shared_layers
from cellblock.oci.contents import ContentsReader
from cellblock.oci.layout import Layout
from cellblock.store.record import ImageRecord

NODE = ("worker", "jail")
"""What every compute node needs."""


@dataclass(frozen=True)
class Report:
    """All that the page shows. `parts` has an entry for each layer, by digest.

    `lock_date` is of the archives that the oldest of the images was built from, None when that is not
    known; `made` is now.
    """

    variant: str
    summary: str
    records: Mapping[str, ImageRecord]
    layers: tuple[SharedLayer, ...]
    parts: Mapping[str, tuple[Part, ...]]
    node: Pull | None
    graph: ImageGraph
    made: datetime
    lock_date: datetime | None

    @property
    def stale(self) -> tuple[str, ...]:
        """Images whose inputs have changed since they were built."""
        return tuple(node.name for node in self.graph.nodes if node.stale)

    @property
    def lock_days(self) -> int | None:
        """Days between the lock and now."""
        return None if self.lock_date is None else (self.made - self.lock_date).days


def report(
    variant: str,
    summary: str,
    records: Mapping[str, ImageRecord],
    layout: Layout,
    graph: ImageGraph,
    made: datetime,
) -> Report:
    """Read the layers that `records` name from `layout`.

    A layer that is not there is one part without a name. Raises CellblockError when there is no record,
    MalformedImage for a damaged layer.
    """
    if not records:
        raise CellblockError(
            f"no image of {variant} was built in this checkout",
            hint=f"build them: `build.py build -v {variant}`",
        )
    layers = shared_layers(records.values())
    return Report(
        variant,
        summary,
        records,
        layers,
        _parts(layers, records, layout),
        pull(records, NODE),
        graph,
        made,
        _lock_date(records),
    )


def _lock_date(records: Mapping[str, ImageRecord]) -> datetime | None:
    """The date of the oldest lock that an image was built from: builds take it for SOURCE_DATE_EPOCH."""
    known = [record.epoch for record in records.values() if record.epoch]
    return datetime.fromtimestamp(min(known), timezone.utc) if known else None


def _parts(
    layers: tuple[SharedLayer, ...], records: Mapping[str, ImageRecord], layout: Layout
) -> dict[str, tuple[Part, ...]]:
    reader = ContentsReader(layout, keep=is_database)
    versions = {name: version for shared in layers for name, version in shared.layer.packages}
    descriptors = {
        descriptor.digest: descriptor
        for record in records.values()
        if layout.has(record.digest)
        for descriptor in layout.image(record.digest).manifest.layers
        if layout.has(descriptor.digest)
    }
    contents = {digest: reader.layer(descriptor) for digest, descriptor in descriptors.items()}
    owner = owners(contents.values())
    found: dict[str, tuple[Part, ...]] = {}
    for shared in layers:
        layer = shared.layer
        if layer.digest in contents:
            mine = {**versions, **dict(layer.packages)}
            found[layer.digest] = parts_of(contents[layer.digest], owner, mine, layer.uncompressed)
        else:
            found[layer.digest] = (Part("", "", layer.uncompressed, 0),)
    return found


def figures(report: Report) -> dict[str, Any]:
    """The page's main numbers, for `--json`: bytes and seconds."""
    return {
        "variant": report.variant,
        "images": {
            name: {
                "bytes": sum(layer.size for layer in record.layers),
                "uncompressed": sum(layer.uncompressed for layer in record.layers),
                "layers": len(record.layers),
                "seconds": record.seconds,
            }
            for name, record in report.records.items()
        },
        "stored_bytes": sum(shared.layer.size for shared in report.layers),
        "node_bytes": report.node.size if report.node else None,
        "lock_days": report.lock_days,
        "stale": list(report.stale),
    }
