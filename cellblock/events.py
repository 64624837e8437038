# SPDX-License-Identifier: Apache-2.0
"""Defines events: what long work reports of itself, as data that a terminal, a log or a test reads.

Code below `cellblock.cli` reports through an `Events` object and never prints. A view (a live
table on a terminal, plain lines elsewhere, JSON lines with `--log json`) subscribes to it.

Events come from several threads at once: `emit` is serialised here so that views need no lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

State = Literal["waiting", "cached", "running", "done", "failed", "stopped"]


@dataclass(frozen=True)
class Event:
    """Base of all events. `time` is seconds since the epoch."""

    time: float = field(default_factory=time.time, kw_only=True)


@dataclass(frozen=True)
class SubjectState(Event):
    """A subject (an image, a volume, a node of the cluster) entered a state.

    `seconds` is the time the subject took so far, of which `download_s` was spent downloading.
    """

    subject: str
    state: State
    detail: str = ""
    seconds: float = 0.0
    download_s: float = 0.0


@dataclass(frozen=True)
class StepStarted(Event):
    """A subject began a named step."""

    subject: str
    step: str


@dataclass(frozen=True)
class StepFinished(Event):
    """A step ended well after `seconds`."""

    subject: str
    step: str
    seconds: float


@dataclass(frozen=True)
class Output(Event):
    """One line that a program of a step printed, without its newline."""

    subject: str
    step: str
    line: str


@dataclass(frozen=True)
class Progress(Event):
    """`done` of `total` (0: unknown) `unit`s of a subject's current step."""

    subject: str
    done: int
    total: int
    unit: str = "bytes"


@dataclass(frozen=True)
class Message(Event):
    """A sentence for the person at the terminal."""

    text: str
    level: Literal["info", "warning"] = "info"


Subscriber = Callable[[Event], None]


class Events:
    """Passes each event to every subscriber, one event at a time."""

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []
        self._lock = threading.Lock()

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber` with each later event, from whichever thread emits it."""
        self._subscribers.append(subscriber)

    def emit(self, event: Event) -> None:
        """Pass `event` on; returns when all subscribers have seen it."""
        with self._lock:
            for subscriber in self._subscribers:
                subscriber(event)

    def info(self, text: str) -> None:
        """Emit an informational `Message`."""
        self.emit(Message(text))

    def warning(self, text: str) -> None:
        """Emit a warning `Message`."""
        self.emit(Message(text, level="warning"))

    @contextmanager
    def step(self, subject: str, step: str) -> Iterator[None]:
        """Bracket a step with `StepStarted` and, when it ends well, `StepFinished`."""
        self.emit(StepStarted(subject, step))
        started = time.monotonic()
        yield
        self.emit(StepFinished(subject, step, time.monotonic() - started))
