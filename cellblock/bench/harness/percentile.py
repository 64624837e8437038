# SPDX-License-Identifier: Apache-2.0
"""Computes percentiles of measurements, and how uncertain they are."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The `percent`-th percentile of `values`, linear between the two nearest ranks.

    Raises ValueError for an empty sequence.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def uncertainty(values: Sequence[float], percent: float) -> float:
    """Half the width of the 95 % confidence interval of the `percent`-th percentile, in the unit of `values`.

    By order statistics, without a model of how the values are distributed: the number of those below the true
    percentile follows the binomial distribution, here by its normal approximation. Raises ValueError for an
    empty sequence.
    """
    if not values:
        raise ValueError("no values")
    spread = 1.96 * math.sqrt(percent / 100 * (1 - percent / 100) / len(values)) * 100
    low, high = max(percent - spread, 0), min(percent + spread, 100)
    return (percentile(values, high) - percentile(values, low)) / 2
