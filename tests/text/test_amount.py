# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from cellblock.text.amount import amount_of_bytes


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_960, "1.0 MB"),
        (2_500_000_000, "2.5 GB"),
        (5_000_000_000_000, "5000.0 GB"),
        (-1500, "-1.5 kB"),
    ],
)
def test_amounts_are_decimal_and_never_show_a_thousand_of_a_unit(number: int, text: str) -> None:
    assert amount_of_bytes(number) == text
