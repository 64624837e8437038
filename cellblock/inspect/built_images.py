# SPDX-License-Identifier: Apache-2.0
"""Lists which images of a variant are built, with the records of their builds, for `graph` and `report`."""

from __future__ import annotations

from collections.abc import Iterable

from cellblock.oci.layout import Layout
from cellblock.store.record import ImageRecord, read_record


def built_records(images: Iterable[str], variant: str, store: Layout) -> dict[str, ImageRecord]:
    """Records of those of `images` that are in `store`, in that order.

    A record outlives its image, and what is told here is of images that can be had.
    """
    records = {name: read_record(name, variant) for name in images}
    return {name: record for name, record in records.items() if record and store.has(record.digest)}
