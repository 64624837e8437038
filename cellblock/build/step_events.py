# SPDX-License-Identifier: Apache-2.0
"""Reports the steps and output lines of building one image or layer as events, and keeps the steps' times.

docker_build.py and scheduler.py give it to an engine or layer_builder.py, which report to it. The terminal's
view shows the events (cellblock/events.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from cellblock.events import Events, Output


class StepEvents:
    """A StepReport (cellblock.engine.recipe) that passes on steps and lines, and keeps the steps' times.

    `title` is the current step, `seconds` the time of each.
    """

    def __init__(self, events: Events, subject: str) -> None:
        self._events = events
        self._subject = subject
        self.title = ""
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Bracket a step."""
        self.title = title
        started = time.monotonic()
        with self._events.step(self._subject, title):
            yield
        self.seconds[title] = self.seconds.get(title, 0.0) + time.monotonic() - started

    def line(self, text: str) -> None:
        """One line of output of the current step."""
        self._events.emit(Output(self._subject, self.title, text))
