# SPDX-License-Identifier: Apache-2.0
"""Finds built images whose definitions, packages, code or tools have changed since, for `graph` and `report`.

It tells which images; inspect/why.py tells which inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

from cellblock.build.prepare import NotResolved, prepare
from cellblock.build.request import BuildRequest
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.store.record import ImageRecord


def stale_images(request: BuildRequest, records: Mapping[str, ImageRecord], events: Events) -> frozenset[str]:
    """Those of `records` that a build of `request` would not give. Asks no archive.

    When it would have to, the packages asked for are others than at any build: all are stale. None are,
    with a warning, when the definitions cannot be read.
    """
    if not records:
        return frozenset()
    try:
        prepared = prepare(request, events, offline=True)
    except NotResolved:
        return frozenset(records)
    except CellblockError as error:
        events.warning(f"not known which images are of earlier inputs: {error}")
        return frozenset()
    return frozenset(
        name
        for name, record in records.items()
        if name not in prepared.plans or prepared.plans[name].key.digest != record.key
    )
