# SPDX-License-Identifier: Apache-2.0
"""Calls a function periodically, in a thread, while a block of code runs. Standard library only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def called_every(interval_s: float, call: Callable[[], None]) -> Iterator[None]:
    """Call `call` in a thread each `interval_s` seconds, the first time after that, until the block ends."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(interval_s):
            call()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
