# SPDX-License-Identifier: Apache-2.0
"""Shows events of a command: a live table on a terminal, plain lines elsewhere, JSON lines with `--log json`.

Only the table imports rich, when the first step starts: a command that finds nothing to do must not pay for a
table that it never draws.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from cellblock.errors import UsageError
from cellblock.events import Event, Events, Message, Output, Progress, StepFinished, StepStarted, SubjectState
from cellblock.text.amount import amount_of_bytes

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

WORTH_A_LINE_S = 1.0
"""Plain lines: steps shorter than this are named when they begin and not again when they end."""

PROGRESS_EVERY_S = 10.0
"""Plain lines: a CI system gives up on a job that is silent for minutes; its log should stay readable."""

LOGS = ("auto", "plain", "json")


class View(Protocol):
    """A subscriber of events that has something to close."""

    def __call__(self, event: Event) -> None:
        """Show `event`."""

    def close(self) -> None:
        """Leave the terminal as it was; called exactly once, also after a failure."""


@contextmanager
def make_view(log: str, events: Events, stream: TextIO | None = None) -> Iterator[View]:
    """Show `events` on `stream` (default: stderr) for as long as the context lasts.

    `log` is auto (a table when `stream` is a terminal), plain or json. Raises UsageError for others.
    """
    out = stream or sys.stderr
    view: View
    if log not in LOGS:
        raise UsageError(f"--log {log}: there is no such view", hint=f"use one of: {', '.join(LOGS)}")
    if log == "json":
        view = JsonView(out)
    elif log == "auto" and _is_terminal(out):
        view = TableView(out)
    else:
        view = PlainView(out)
    events.subscribe(view)
    try:
        yield view
    finally:
        view.close()


def _is_terminal(stream: TextIO) -> bool:
    """Whether `stream` can redraw lines; a CI system's pseudo-terminal is kept as a log instead."""
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb" and not os.environ.get("CI")


class JsonView:
    """One object a line: `event` is the event's name (subject_state, step_started ...), then its fields."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self._stream = stream

    def __call__(self, event: Event) -> None:
        """Write one line."""
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
        fields: dict[str, Any] = {"event": name, **dataclasses.asdict(event)}
        self._stream.write(json.dumps(fields) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Nothing to do: every line was flushed."""


class PlainView:
    """A line for each change of state and each step, in the order they happen."""

    def __init__(self, stream: TextIO) -> None:
        """Write to `stream`."""
        self._stream = stream
        self._reported: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        """Write a line if `event` is worth one."""
        line = self._line(event)
        if line:
            self._stream.write(line + "\n")
            self._stream.flush()

    def _line(self, event: Event) -> str:
        if isinstance(event, Message):
            return f"warning: {event.text}" if event.level == "warning" else event.text
        if isinstance(event, SubjectState):
            return "" if event.state == "waiting" else f"{event.subject}: {_state_text(event)}"
        if isinstance(event, StepStarted):
            self._reported[event.subject] = event.time
            return f"{event.subject}: {event.step}"
        if isinstance(event, StepFinished) and event.seconds >= WORTH_A_LINE_S:
            return f"{event.subject}: {event.step}: done in {event.seconds:.1f} s"
        if isinstance(event, Progress) and self._is_due(event):
            return f"{event.subject}: {_progress_text(event)}"
        return ""

    def _is_due(self, event: Progress) -> bool:
        if event.time - self._reported.setdefault(event.subject, event.time) < PROGRESS_EVERY_S:
            return False
        self._reported[event.subject] = event.time
        return True

    def close(self) -> None:
        """Nothing to do: every line was flushed."""


@dataclasses.dataclass
class _Row:
    """What the table knows about a subject."""

    state: str = "waiting"
    since: float = 0.0
    seconds: float | None = None
    step: str = ""
    last: str = ""
    step_since: float = 0.0
    has_states: bool = False
    """Whether it says itself when it is done; what has only steps is done when its last one is."""


_STYLES = {
    "waiting": "dim",
    "cached": "green",
    "running": "cyan",
    "done": "green",
    "failed": "bold red",
    "stopped": "yellow",
}


class TableView:
    """A row for each subject: state, seconds, step and the step's last line, redrawn in place.

    When a subject failed, its step and last line stay in the final table.
    """

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.time) -> None:
        """Draw on `stream`; `clock` gives the time in the events' terms."""
        self._stream = stream
        self._clock = clock
        self._rows: dict[str, _Row] = {}
        self._lock = threading.Lock()  # rich redraws from a thread of its own
        self._live: Live | None = None

    def __call__(self, event: Event) -> None:
        """Take `event` into the table; the first thing that runs makes it appear."""
        if isinstance(event, Message):
            self._message(event)
            return
        with self._lock:
            self._update(event)
        if isinstance(event, StepStarted) or (isinstance(event, SubjectState) and event.state == "running"):
            self._show()

    def _message(self, event: Message) -> None:
        text = f"warning: {event.text}" if event.level == "warning" else event.text
        if self._live:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            self._stream.write(text + "\n")
            self._stream.flush()

    def _update(self, event: Event) -> None:
        if isinstance(event, SubjectState):
            row = self._rows.setdefault(event.subject, _Row())
            row.has_states = True
            if event.state == "running" and row.state != "running":
                row.since = event.time - event.seconds
            row.state = event.state
            row.seconds = None if event.state in ("running", "waiting", "cached") else event.seconds
            if event.state == "failed":
                row.last = event.detail or row.last
            elif event.state != "running":
                row.step, row.last = "", _outcome(event)
        elif isinstance(event, StepStarted):
            row = self._rows.setdefault(event.subject, _Row(state="running", since=event.time))
            if not row.has_states and row.state != "running":
                row.state, row.since = "running", event.time
            row.step, row.last, row.step_since = event.step, "", event.time
        elif isinstance(event, StepFinished):
            row = self._rows.get(event.subject, _Row(has_states=True))
            if not row.has_states:
                row.state, row.seconds, row.last = "done", event.time - row.since, ""
        elif isinstance(event, Output):
            row = self._rows.setdefault(event.subject, _Row(state="running", since=event.time))
            row.last = event.line.strip() or row.last
        elif isinstance(event, Progress):
            row = self._rows.setdefault(event.subject, _Row(state="running", since=event.time))
            row.last = _progress_text(event, event.time - row.step_since if row.step_since else 0.0)

    def _show(self) -> None:
        if self._live:
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._stream)
        # Four times a second: a person sees it move, and drawing stays below 1 % of a core.
        self._live = Live(get_renderable=self.table, console=console, refresh_per_second=4)
        self._live.start()

    def table(self) -> Table:
        """The table as it is now."""
        from rich.table import Table
        from rich.text import Text

        now = self._clock()
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        with self._lock:
            rows = [(subject, dataclasses.replace(row)) for subject, row in self._rows.items()]
        # Widths are spelled out because rich would otherwise shorten the names to fit a long last line.
        table.add_column(no_wrap=True, min_width=max((len(name) for name, _ in rows), default=0))
        table.add_column(no_wrap=True, min_width=len("running"))
        table.add_column(no_wrap=True, min_width=len("10.0 s"), justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for subject, row in rows:
            seconds = now - row.since if row.state == "running" else row.seconds
            doing = f"{row.step}: {row.last}" if row.step and row.last else row.step or row.last
            table.add_row(
                Text(subject),
                Text(row.state, style=_STYLES.get(row.state, "")),
                Text("" if seconds is None else f"{seconds:.1f} s"),
                Text(_printable(doing), style="red" if row.state == "failed" else "dim"),
            )
        return table

    def close(self) -> None:
        """Draw the last state and give the terminal back. What an error or Ctrl-C ended is stopped."""
        with self._lock:
            for row in self._rows.values():
                if row.state == "running":
                    row.state, row.seconds = "stopped", self._clock() - row.since
        if self._live:
            self._live.stop()
            self._live = None


def _state_text(event: SubjectState) -> str:
    """A state in words, for example `done in 12.3 s (downloading 2.0 s)`."""
    if event.state == "running":
        return event.detail or "started"
    text: str = event.state
    if event.seconds and event.state != "cached":
        text += f" {'in' if event.state == 'done' else 'after'} {event.seconds:.1f} s"
    if event.download_s >= 0.05:  # would show as 0.0
        text += f" (downloading {event.download_s:.1f} s)"
    return f"{text}: {event.detail}" if event.detail else text


def _outcome(event: SubjectState) -> str:
    parts = [event.detail] if event.detail else []
    if event.download_s >= 0.05:
        parts.append(f"downloading {event.download_s:.1f} s")
    return ", ".join(parts)


def _progress_text(event: Progress, seconds: float = 0.0) -> str:
    """For example `45 % of 1.2 GB, 96.0 MB/s, 7 s left`."""
    if not event.total:
        return _amount(event.done, event.unit)
    text = f"{100 * event.done // event.total} % of {_amount(event.total, event.unit)}"
    if seconds >= 1 and event.done:
        rate = event.done / seconds
        text += f", {_amount(int(rate), event.unit)}/s, {(event.total - event.done) / rate:.0f} s left"
    return text


def _amount(number: int, unit: str) -> str:
    return amount_of_bytes(number) if unit == "bytes" else f"{number} {unit}"


def _printable(text: str) -> str:
    """`text` without what could move a terminal's cursor: programs print such things."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f]", "", text)
