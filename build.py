#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cellblock's one command: `python3 build.py --help`.

Needs nothing but the standard library: `cellblock.launcher.main` makes .venv on first use and then hands
over to `cellblock.cli`. This file keeps to syntax that any Python reads, so that one that is too old
gets a sentence and not a syntax error.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - this check exists for the versions below the minimum
    found = sys.version.split()[0] + " (" + sys.executable + ")"
    sys.stderr.write("error: Cellblock needs Python 3.10 or newer; this is " + found + "\n")
    sys.stderr.write("  next: run it with a newer one, for example: python3.11 build.py\n")
    sys.exit(1)

from cellblock.launcher.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
