# SPDX-License-Identifier: Apache-2.0
"""Runs the command line as `python -m cellblock.cli`, and turns errors into a message and an exit status."""

from __future__ import annotations

import errno
import gc
import re
import sys
from typing import Any

from cellblock.errors import CellblockError
from cellblock.launcher import closed_pipe, failure
from cellblock.privilege import AS_ROOT, needs_root
from cellblock.text.printable import printable

_INTERRUPTED = 130


def main() -> int:
    """Run the command line; returns the exit status (0 done, 1 failed, 2 wrong usage)."""
    # A command makes many objects and no garbage; the default looks for some at every 700.
    gc.set_threshold(50_000)
    args = sys.argv[1:]
    try:
        status = _told(args)
        failure.give_up_output()
        return status
    except OSError as error:
        if error.errno == errno.EPIPE and closed_pipe.nobody_reads():
            return closed_pipe.end_quietly()
        raise


def _told(args: list[str]) -> int:
    """Run the command line, and say how it failed."""
    try:
        status = _run(args)
        # Here, where it can be told what went wrong, and not by Python at its end.
        sys.stdout.flush()
        return _say_interrupted(args) if status == _INTERRUPTED else status
    except CellblockError as error:
        return failure.tell(error.message, error.hint, error.exit_status, args)
    except OSError as error:
        if error.errno == errno.EPIPE and closed_pipe.nobody_reads():
            raise
        name = error.filename  # bytes in a jail, where a file's name needs to be no text
        text = name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        unknown = "what is printed, or a file: " if full else ""  # a write(2) names no path
        where = f"{printable(text)}: " if name else unknown
        hint = "free some space (`df -h`)" if full else "check the path and its permissions"
        first = f"{AS_ROOT}, or " if needs_root(error) else ""
        next_step = f"{first}{hint}, then run this again"
        return failure.tell(f"{where}{error.strerror or error}", next_step, 1, args)
    except KeyboardInterrupt:
        return _say_interrupted(args)
    except SystemExit as ended:
        # Of typer or rich, which say nothing when the pipe that they wrote to is closed.
        if isinstance(ended.__context__, OSError) and ended.__context__.errno == errno.EPIPE:
            return closed_pipe.end_quietly()
        raise
    except Exception as error:
        if type(error).__name__ == "Abort":  # what typer makes of Ctrl-C, by its version
            return _say_interrupted(args)
        if not hasattr(error, "format_message"):
            raise
        return _say_wrong_usage(error, args)


def _say_interrupted(args: list[str]) -> int:
    again = "run the same command again: it goes on where this stopped"
    return failure.tell("interrupted", again, _INTERRUPTED, args)


def _say_wrong_usage(error: Exception, args: list[str]) -> int:
    """Say what typer refuses. By its attributes: typer brings its own click, or takes the system's."""
    status: int = error.exit_code  # type: ignore[attr-defined]
    message: str = error.format_message()  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    meant = _cluster_meant(message, context)
    if failure.logs_json(args) or failure.prints_json(args):
        command = context.command_path if context else failure.PROGRAM
        return failure.tell(message, meant or f"`{command} --help` lists what there is", status, args)
    error.show()  # type: ignore[attr-defined]
    if meant:
        sys.stderr.write(f"  next: {failure.typeable(meant)}\n")
    return status


def _cluster_meant(message: str, context: Any) -> str:
    """What to type for a cluster that was named without `--name`; empty where that is not what is wrong."""
    extra = re.search(r"unexpected extra argument\S* \(([A-Za-z0-9-]+)\)", message)
    takes_name = context and any("--name" in one.opts for one in context.command.params)
    return f"`{context.command_path} --name {extra[1]}`, if that is a cluster" if extra and takes_name else ""


def _run(args: list[str]) -> int:
    """The status that the command asks for; what typer raises is the caller's."""
    if args[:1] != ["jail"]:
        if args and args[0].endswith("-completion"):
            from cellblock.cli import completion

            text = completion.asked(args)
            if text is not None:
                print(text, end="")
                return 0
        from cellblock.cli.app import app

        return app(prog_name=failure.PROGRAM, standalone_mode=False) or 0
    from cellblock.cli.jail import upgrade as jail_upgrade

    plain = jail_upgrade.parse_plain_upgrade(args)
    if plain is not None:
        jail_upgrade.run(plain.source, plain.volume, log=plain.log, as_json=plain.as_json)
        return 0
    from cellblock.cli.jail.app import app as jail_app

    return jail_app(prog_name=failure.PROGRAM, standalone_mode=False) or 0


if __name__ == "__main__":
    sys.exit(main())
