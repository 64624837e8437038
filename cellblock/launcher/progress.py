# SPDX-License-Identifier: Apache-2.0
"""Shows that a program of the installation is at work: apt and pip take minutes.

    in a terminal   one line, drawn anew: what the program printed last, and for how long it has been at work
    elsewhere       the same as a line of its own every few seconds

Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from cellblock.launcher import failure
from cellblock.launcher.periodic import called_every

# A log is read by people; a CI system gives up on a job that is silent for minutes.
_EVERY_S = 5.0
# Of a line of a log; pip names a hundred packages in one.
_MOST_COLUMNS = 100
# Often enough that a person sees it move.
_DRAWN_EVERY_S = 0.25
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x1f\x7f]")
# "Unpacking podman ...", "Get:3 http:...", "Collecting rich": neither pip's bars nor warnings.
_STEP = re.compile(r"[A-Z][a-z]+")
_CLEAR = "\r\x1b[K"


@contextmanager
def shown(args: list[str]) -> Iterator[Callable[[str], None]]:
    """Show the last of the lines that the function is called with, until the block ends.

    `args`, the words after `build.py`, say in which way (`--log json`).
    """
    redraws = _redraws(args)
    last, started = [""], time.monotonic()

    def show(line: str) -> None:
        text = _CONTROL.sub("", line).strip()
        if _STEP.match(text):
            last[0] = text

    def tell() -> None:
        text = f"  {last[0] or 'at work'} ({time.monotonic() - started:.0f} s)"
        with suppress(OSError):  # whoever read stderr is gone: the next line of the launcher finds out
            if redraws:
                sys.stderr.write(_CLEAR + _cut(f"build.py: {text}", shutil.get_terminal_size().columns - 1))
                sys.stderr.flush()
            else:
                failure.inform(_cut(text, _MOST_COLUMNS), args)

    try:
        with called_every(_DRAWN_EVERY_S if redraws else _EVERY_S, tell):
            yield show
    finally:
        if redraws:
            with suppress(OSError):
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()


def _redraws(args: list[str]) -> bool:
    """Whether stderr can redraw a line; a CI system's pseudo-terminal is kept as a log instead."""
    terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return terminal and not os.environ.get("CI") and not failure.logs_json(args)


def _cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, its end kept: there stand the seconds."""
    if len(text) <= width:
        return text
    end = text[text.rindex(" (") :]
    return text[: max(0, width - len(end) - 3)] + "..." + end
