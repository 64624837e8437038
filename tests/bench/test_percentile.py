from __future__ import annotations

import pytest

from cellblock.bench.percentile import percentile


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1), (50, 2.5), (100, 4), (25, 1.75)], ids=["min", "median", "max", "quartile"]
)
def test_percentiles_are_linear_between_ranks(percent: float, value: float) -> None:
    assert percentile([4, 1, 3, 2], percent) == value


def test_one_value_is_every_percentile_and_none_is_an_error() -> None:
    assert percentile([7], 99) == 7
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
