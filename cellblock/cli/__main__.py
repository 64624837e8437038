"""`python -m cellblock.cli`: runs the application and turns errors into a message and a status."""

from __future__ import annotations

import errno
import os
import sys

from cellblock.errors import CellblockError


def main() -> int:
    """Run the command line; returns the exit status (0 done, 1 failed, 2 wrong usage)."""
    from cellblock.cli.app import app

    try:
        app(prog_name="build.py")
    except CellblockError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_status
    except BrokenPipeError:
        # Whoever read our output is gone (`| head`): nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space (`df -h`)" if full else "check the path and its permissions"
        sys.stderr.write(f"error: {where}{error.strerror or error}\n  next: {hint}, then run this again\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
