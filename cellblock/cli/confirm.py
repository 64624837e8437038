# SPDX-License-Identifier: Apache-2.0
"""Asks for confirmation on the terminal before something that cannot be undone, or that others notice."""

from __future__ import annotations

import sys

import typer


def ask(question: str, *, hint: str) -> None:
    """Ask on the terminal; no ends the command. Raises UsageError where nobody can answer."""
    from cellblock.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError(f"{question} Nobody can answer: this is no terminal", hint=hint)
    typer.confirm(question, abort=True)
