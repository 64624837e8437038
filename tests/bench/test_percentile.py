# SPDX-License-Identifier: Apache-2.0
"""Percentiles and the uncertainty of a median, which the figures of benchmarks are made of."""

from __future__ import annotations

import math
from random import Random

import pytest

from cellblock.bench.harness.percentile import percentile, uncertainty


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1), (50, 2.5), (100, 4), (25, 1.75)], ids=["min", "median", "max", "quartile"]
)
def test_percentiles_are_linear_between_ranks(percent: float, value: float) -> None:
    assert percentile([4, 1, 3, 2], percent) == value


def test_one_value_is_every_percentile_and_none_is_an_error() -> None:
    assert percentile([7], 99) == 7
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_the_interval_holds_the_true_percentile_19_times_of_20() -> None:
    random = Random(1)
    held = {50: 0, 99: 0}
    for _ in range(200):
        values = [random.expovariate(1) for _ in range(1000)]
        for percent, true in ((50, math.log(2)), (99, math.log(100))):
            held[percent] += abs(percentile(values, percent) - true) <= uncertainty(values, percent)
    assert all(180 <= times <= 199 for times in held.values())


def test_an_uncertainty_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        uncertainty([], 50)
