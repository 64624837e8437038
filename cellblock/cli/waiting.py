# SPDX-License-Identifier: Apache-2.0
"""Prints every five seconds what a slow command waits for, such as podman; `build.py status` uses it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from cellblock.launcher.periodic import called_every

# Seconds of silence after which a person asks whether anything happens, and between two such lines.
_EVERY_S = 5.0


class Waiting:
    """What is waited for at the moment. Called with a text, it is that from now on."""

    def __init__(self) -> None:
        self._text = ""
        self._since = time.monotonic()

    def __call__(self, text: str) -> None:
        """From now on `text` is waited for."""
        self._text, self._since = text, time.monotonic()

    def line(self) -> str:
        """What to say now."""
        return f"waiting for {self._text} since {time.monotonic() - self._since:.0f} s"


@contextmanager
def told_when_slow(stream: TextIO | None = None, every_s: float = _EVERY_S) -> Iterator[Waiting]:
    """Write a line on `stream` (default: stderr) each `every_s` seconds until the block ends."""
    out = stream or sys.stderr
    waiting = Waiting()

    def tell() -> None:
        out.write(f"{waiting.line()}\n")
        out.flush()

    with called_every(every_s, tell):
        yield waiting
