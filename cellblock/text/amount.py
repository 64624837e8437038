# SPDX-License-Identifier: Apache-2.0
"""Writes numbers of bytes for people (`1.5 kB`), and refuses sizes given without a unit."""

from __future__ import annotations

import re

from cellblock.errors import UsageError


def amount_of_bytes(number: float) -> str:
    """Decimal units, as registries, disks and networks count: `999 B`, `1.5 kB`, `210.0 MB`."""
    size, sign = abs(float(number)), "-" if number < 0 else ""
    for name in ("B", "kB", "MB"):
        # Compared as it is shown: 999,960 would be printed as 1000.0 kB.
        if round(size, 1) < 1000:
            return f"{sign}{size:.0f} B" if name == "B" else f"{sign}{size:.1f} {name}"
        size /= 1000
    return f"{sign}{size:.1f} GB"


def refuse_without_unit(option: str, size: str, unit: str, *, done: str = "", otherwise: str = "") -> None:
    """Raise UsageError when `size`, the value of `option`, is a number that could be meant in another unit.

    Who writes 5 means 5 GB, and would get 5 bytes. `unit` is what the hint adds to the number; `done` says
    what was not done, `otherwise` what else can be written.
    """
    if re.fullmatch("[0-9.]+", size) and re.search("[1-9]", size):
        raise UsageError(
            f"{option} {size} is {size} bytes: a number without a unit is of bytes{done}",
            hint=f"give a unit, as in {size if len(size) < 7 else 500}{unit}{otherwise}",
        )
