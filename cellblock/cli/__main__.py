"""`python -m cellblock.cli`: runs the application and turns errors into a message and a status."""

from __future__ import annotations

import errno
import gc
import os
import sys

from cellblock.errors import CellblockError
from cellblock.printable import printable

_INTERRUPTED = "error: interrupted\n  next: run the same command again: it goes on where this stopped\n"


def main() -> int:
    """Run the command line; returns the exit status (0 done, 1 failed, 2 wrong usage)."""
    # A command makes many objects and no garbage; the default looks for some at every 700.
    gc.set_threshold(50_000)
    try:
        _run(sys.argv[1:])
    except CellblockError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_status
    except BrokenPipeError:
        # Whoever read our output is gone (`| head`): nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        name = error.filename  # bytes in a jail, where a file's name needs to be no text
        text = name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        unknown = "what is printed, or a file: " if full else ""  # a write(2) names no path
        where = f"{printable(text)}: " if name else unknown
        hint = "free some space (`df -h`)" if full else "check the path and its permissions"
        sys.stderr.write(f"error: {where}{error.strerror or error}\n  next: {hint}, then run this again\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(_INTERRUPTED)
        return 130
    except SystemExit as ended:
        if _is_interrupted(ended):  # typer makes it a status, and says nothing
            sys.stderr.write(_INTERRUPTED)
        raise
    return 0


def _is_interrupted(ended: BaseException) -> bool:
    """Whether Ctrl-C is what this came from, and not the status of a program that we ran."""
    reason: BaseException | None = ended
    while reason is not None and not isinstance(reason, KeyboardInterrupt):
        reason = reason.__cause__ or reason.__context__
    return reason is not None


def _run(args: list[str]) -> None:
    if args[:1] != ["jail"]:
        from cellblock.cli.app import app

        app(prog_name="build.py")
        return
    from cellblock.cli import jail_upgrade

    plain = jail_upgrade.plainly(args)
    if plain is not None:
        jail_upgrade.run(plain.source, plain.volume, log=plain.log, as_json=plain.as_json)
        return
    from cellblock.cli.jail_app import app as jail_app

    jail_app(prog_name="build.py")


if __name__ == "__main__":
    sys.exit(main())
