# SPDX-License-Identifier: Apache-2.0
"""Writes numbers of bytes for people: `1.5 kB`."""

from __future__ import annotations


def amount_of_bytes(number: float) -> str:
    """Decimal units, as registries, disks and networks count: `999 B`, `1.5 kB`, `210.0 MB`."""
    size, sign = abs(float(number)), "-" if number < 0 else ""
    for name in ("B", "kB", "MB"):
        # Compared as it is shown: 999,960 would be printed as 1000.0 kB.
        if round(size, 1) < 1000:
            return f"{sign}{size:.0f} B" if name == "B" else f"{sign}{size:.1f} {name}"
        size /= 1000
    return f"{sign}{size:.1f} GB"
