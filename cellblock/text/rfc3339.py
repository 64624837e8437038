# SPDX-License-Identifier: Apache-2.0
"""Reads times of RFC 3339 as programs in Go print them, such as `2024-05-01T12:00:00.123456789Z`."""

from __future__ import annotations

import re
from datetime import datetime

# datetime reads neither nanoseconds nor, before Python 3.11, a Z.
_TIME = re.compile(r"([\d-]+T[\d:]+)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


def nanoseconds(text: str) -> int:
    """Nanoseconds since the epoch. Raises ValueError when `text` is no time of RFC 3339."""
    match = _TIME.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no time of RFC 3339")
    zone = "+00:00" if match[3] == "Z" else match[3]
    whole = int(datetime.fromisoformat(match[1] + zone).timestamp())
    return whole * 1_000_000_000 + int((match[2] or "0").ljust(9, "0"))


def seconds(text: str) -> int:
    """Whole seconds since the epoch. Raises ValueError when `text` is no time of RFC 3339."""
    return nanoseconds(text) // 1_000_000_000
