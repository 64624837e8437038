# SPDX-License-Identifier: Apache-2.0
"""Writes memory and processors as Kubernetes' API does, 1Gi for 1024Mi: else `kubectl diff` sees a change."""

from __future__ import annotations

from decimal import Decimal

from cellblock.cluster.definition.amounts import mebibytes


def memory(mib: int) -> str:
    """MiB as a quantity, by the largest unit that needs no fraction."""
    for unit, size in (("Ti", 2**20), ("Gi", 2**10)):
        if mib % size == 0:
            return f"{mib // size}{unit}"
    return f"{mib}Mi"


def size(text: str) -> str:
    """A size of the cluster file, such as 1024Gi, as a quantity."""
    return memory(mebibytes(text))


def cpu(text: str) -> str:
    """Processors, such as 4, 0.5 or 1000m, as a quantity."""
    milli = int(text.removesuffix("m")) if text.endswith("m") else int(Decimal(text) * 1000)
    return f"{milli}m" if milli % 1000 else str(milli // 1000)
