# SPDX-License-Identifier: Apache-2.0
"""Numbers of bytes, as people read and write them."""

from __future__ import annotations

import pytest

from cellblock.errors import UsageError
from cellblock.text.amount import amount_of_bytes, refuse_without_unit


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


@pytest.mark.parametrize(("size", "advised"), [("5", "5G"), ("0.5", "0.5G"), ("5000000000", "500G")])
def test_a_number_without_a_unit_is_refused_with_one_that_has_it(size: str, advised: str) -> None:
    with pytest.raises(UsageError, match=f"^--most {size} is {size} bytes: .*; nothing was done") as raised:
        refuse_without_unit("--most", size, "G", done="; nothing was done", otherwise="; or 0")
    assert raised.value.hint == f"give a unit, as in {advised}; or 0"


@pytest.mark.parametrize("size", ["0", "5G", "5 G", "500Gi", "much"])
def test_another_text_is_for_the_caller_to_judge(size: str) -> None:
    refuse_without_unit("--most", size, "G")
