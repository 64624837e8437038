# SPDX-License-Identifier: Apache-2.0
"""Defines the interface by which poller.py asks slurmctld, which openmetrics.py and commands.py implement."""

from __future__ import annotations

from typing import Protocol


class AskError(Exception):
    """slurmctld gave no answer that can be used. The message says which question and why."""


class Source(Protocol):
    """Asks slurmctld, one question a kind."""

    @property
    def name(self) -> str:
        """What it asks by: `openmetrics` or `commands`."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The questions, in the order in which they are asked."""

    def ask(self, kind: str, timeout_s: float) -> bytes:
        """The answer in Prometheus' text format. Raises AskError, at the latest after `timeout_s` seconds."""
