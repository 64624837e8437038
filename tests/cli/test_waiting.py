# SPDX-License-Identifier: Apache-2.0
"""A command that waits says what for."""

from __future__ import annotations

import io
import threading

from cellblock.cli.waiting import told_when_slow


class Lines(io.StringIO):
    """A stream that says when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        done = super().write(text)
        self.written.set()
        return done


def test_what_is_waited_for_is_said_after_a_while() -> None:
    stream = Lines()
    with told_when_slow(stream, every_s=0.05) as waits_for:
        waits_for("the moon")
        assert stream.written.wait(20)
    assert stream.getvalue().startswith("waiting for the moon since 0 s\n")


def test_who_does_not_wait_long_is_told_nothing() -> None:
    stream = Lines()
    with told_when_slow(stream, every_s=60) as waits_for:
        waits_for("the moon")
    assert stream.getvalue() == ""
