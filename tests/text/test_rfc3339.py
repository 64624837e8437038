# SPDX-License-Identifier: Apache-2.0
"""Times of RFC 3339, exact to the nanosecond."""

from __future__ import annotations

import pytest

from cellblock.text.rfc3339 import nanoseconds, seconds


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:05.000000007Z", 5_000_000_007),
        ("1969-12-31T23:59:54.999999999Z", -5_000_000_001),
        ("2026-11-21T22:31:39Z", 1_795_300_299_000_000_000),
        ("2026-11-21T22:31:39.5Z", 1_795_300_299_500_000_000),
        ("2026-11-22T00:31:39.5+02:00", 1_795_300_299_500_000_000),
    ],
)
def test_times_are_exact(text: str, ns: int) -> None:
    assert nanoseconds(text) == ns
    assert seconds(text) == ns // 1_000_000_000


@pytest.mark.parametrize("text", ["", "2026-11-21", "2026-11-21T22:31:39", "2026-13-21T22:31:39Z"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"RFC 3339|month"):
        nanoseconds(text)
