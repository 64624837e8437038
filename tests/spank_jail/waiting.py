# SPDX-License-Identifier: Apache-2.0
"""Waits until a condition is true that a program under test brings about by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 60
"""Seconds until a condition must hold; what takes longer never comes true."""


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
