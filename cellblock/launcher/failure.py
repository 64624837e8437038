# SPDX-License-Identifier: Apache-2.0
"""Reports that a command failed: as text for people, as JSON for programs that asked for it.

    --log json   one line on stderr, like progress: event, time, error, next, status
    --json       one object on stdout instead of the result: error, next, status; the text on stderr

Standard library only: the launcher reports its failures in the same way, before anything is installed.
"""

from __future__ import annotations

import os
import sys
import time

PROGRAM = os.environ.get("CELLBLOCK_PROGRAM", "build.py")
"""As a person calls it: in the image jail-init there is no build.py."""

# What follows is another program's, whatever it looks like.
_OTHERS_WORDS = ("shell", "test")


def logs_json(args: list[str]) -> bool:
    """Whether `args`, the words after `build.py`, ask for progress as JSON lines."""
    words = _own(args)
    return "--log=json" in words or any(pair == ("--log", "json") for pair in zip(words, words[1:]))  # noqa: B905, RUF007 - Python 3.10


def prints_json(args: list[str]) -> bool:
    """Whether `args` ask for the result as one JSON object."""
    return "--json" in _own(args)


def tell(message: str, next_step: str, status: int, args: list[str]) -> int:
    """Say what failed and what to do next, in the way that `args` ask for; returns `status`."""
    message, next_step = _as_called(message), typeable(next_step)
    if logs_json(args):
        sys.stderr.write(_json(event="error", time=time.time(), error=message, next=next_step, status=status))
    else:
        sys.stderr.write(_lines("error: ", message) + (_lines("  next: ", next_step) if next_step else ""))
    if prints_json(args):
        sys.stdout.write(_json(error=message, next=next_step, status=status))
        sys.stdout.flush()
    return status


def _lines(head: str, text: str) -> str:
    """`head` and `text`, broken between words on a terminal; what goes to a file stays one line."""
    import shutil

    from cellblock.text.lines import broken

    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    lines = [line for one in (head + text).split("\n") for line in broken(one, width, len(head))]
    return "".join(f"{line}\n" for line in lines)


def inform(text: str, args: list[str]) -> None:
    """A line of progress on stderr, in the way that `args` ask for."""
    if logs_json(args):
        text = _json(event="message", time=time.time(), level="info", text=text)
    else:
        text = _lines("build.py: ", text)
    sys.stderr.write(text)
    sys.stderr.flush()


def give_up_output() -> None:
    """Drop what stdout could not take, of which was told: Python would try and complain once more."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _as_called(text: str) -> str:
    """`text` with the commands in it as they are called here."""
    if PROGRAM == "build.py":
        return text
    return text.replace("python3 build.py ", f"{PROGRAM} ").replace("build.py ", f"{PROGRAM} ")


def typeable(hint: str) -> str:
    """`hint` with the commands between backquotes as a person types them: `jail verify VOLUME`, say."""
    program = "python3 build.py" if PROGRAM == "build.py" else PROGRAM
    hint = hint.replace("`jail ", f"`{program} jail ")
    return _as_called(hint.replace("`build.py ", f"`{program} "))


def _own(args: list[str]) -> list[str]:
    if next((word for word in args if not word.startswith("-")), "") in _OTHERS_WORDS:
        return []
    return args[: args.index("--")] if "--" in args else args


def _json(**fields: object) -> str:
    import json

    return json.dumps(fields) + "\n"
