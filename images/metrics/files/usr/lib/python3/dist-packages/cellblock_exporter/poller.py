# SPDX-License-Identifier: Apache-2.0
"""Asks slurmctld at a fixed interval, however many scrapers there are, and keeps the last answers.

server.py serves these answers.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cellblock_exporter.exposition import Text
from cellblock_exporter.source import AskError, Source

# Answers older than so many intervals are kept back: old figures that look like new ones mislead.
_KEPT_INTERVALS = 3
# Seconds between two looks at what needs no question. jail-records copies it every ten, and for the first
# time about now.
_FURTHER_S = (1, 5)


@dataclass
class _Kind:
    """What is known of one question."""

    answer: bytes = b""
    answered: float | None = None
    """time.monotonic() of the last answer."""
    seconds: float = 0.0
    """How long the last question took."""
    up: bool = False
    asked: dict[str, int] = field(default_factory=lambda: {"answered": 0, "failed": 0})
    failure: str = ""


class Poller:
    """The last answers of `source`, which `run` asks every `interval_s` seconds."""

    def __init__(
        self, source: Source, interval_s: float, timeout_s: float, further: Callable[[Text], None]
    ) -> None:
        """`further` adds families that need no question: `run_further` calls it, and not a scrape."""
        self._source = source
        self._further = further
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._kinds = {kind: _Kind() for kind in source.kinds}
        self._further_text = b""
        self.read_further()
        # Held for a copy of a few values, and never while something is asked.
        self._lock = threading.Lock()

    def run(self) -> None:
        """Ask for ever. Questions that take longer than the interval are followed by a whole one of rest."""
        while True:
            started = time.monotonic()
            self.ask_all()
            took = time.monotonic() - started
            time.sleep(self._interval_s if took > self._interval_s else self._interval_s - took)

    def run_further(self) -> None:
        """Read the further families for ever: beside `run`, which waits for slurmctld."""
        first, later = _FURTHER_S
        time.sleep(first)
        while True:
            self.read_further()
            time.sleep(later)

    def read_further(self) -> None:
        """Have `further` say what each page tells until the next time. It may read a file for each node."""
        text = Text()
        try:
            self._further(text)
        except (OSError, ValueError) as error:
            print(f"cellblock-metrics: the jail's records: {error}", file=sys.stderr, flush=True)
        self._further_text = text.encode()

    def ask_all(self) -> None:
        """Ask each question once."""
        for kind in self._kinds:
            started = time.monotonic()
            try:
                answer, failure = self._source.ask(kind, self._timeout_s), ""
            except AskError as error:
                answer, failure = b"", str(error)
            now = time.monotonic()
            with self._lock:
                self._note(self._kinds[kind], answer, failure, started, now)

    def _note(self, known: _Kind, answer: bytes, failure: str, started: float, now: float) -> None:
        known.seconds = now - started
        known.up = not failure
        known.asked["failed" if failure else "answered"] += 1
        if failure:
            if not known.failure:
                print(f"cellblock-metrics: {failure}; asking again", file=sys.stderr, flush=True)
        else:
            known.answer, known.answered = answer, now
            if known.failure:
                print(f"cellblock-metrics: answered again: {known.failure}", file=sys.stderr, flush=True)
        known.failure = failure

    def page(self) -> bytes:
        """The last answers, and what is known of the questions. Asks nothing."""
        now = time.monotonic()
        with self._lock:
            kinds = {kind: (known.answer, known.answered, known.seconds, known.up, dict(known.asked))
                     for kind, known in self._kinds.items()}  # fmt: skip
        fresh = [
            answer
            for answer, answered, *_ in kinds.values()
            if answered is not None and now - answered <= _KEPT_INTERVALS * self._interval_s + self._timeout_s
        ]
        text = Text()
        text.gauge(
            "cellblock_slurmctld_up",
            "Whether slurmctld answered each of the exporter's last questions",
            all(up for _, _, _, up, _ in kinds.values()),
        )
        text.family(
            "cellblock_exporter_cache_age_seconds",
            "gauge",
            "Time since slurmctld answered this question",
            (({"kind": kind}, now - known[1]) for kind, known in kinds.items() if known[1] is not None),
        )
        text.family(
            "cellblock_exporter_question_seconds",
            "gauge",
            "Time that the last question of this kind took",
            (({"kind": kind}, known[2]) for kind, known in kinds.items()),
        )
        text.family(
            "cellblock_exporter_questions_total",
            "counter",
            "Questions to slurmctld since the exporter started",
            (
                ({"kind": kind, "result": result}, count)
                for kind, known in kinds.items()
                for result, count in known[4].items()
            ),
        )
        text.gauge(
            "cellblock_exporter_interval_seconds", "Time between questions of a kind", self._interval_s
        )
        text.gauge("cellblock_exporter_info", "How slurmctld is asked", 1, {"source": self._source.name})
        return b"".join(fresh) + self._further_text + text.encode()
