# SPDX-License-Identifier: Apache-2.0
"""Builds the documentation as a site, and shows it: `build.py docs`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.paths import PROJECT


class DocsError(CellblockError):
    """mkdocs found something wrong with the pages."""


def build_site(output: Path) -> int:
    """Make the site in the folder `output`, which is replaced; returns the number of pages.

    Raises `DocsError` for a link or an anchor that leads nowhere, and for a page that no menu lists.
    """
    output = output.absolute()
    command = [sys.executable, "-I", "-m", "mkdocs", "build", "--strict", "--clean"]
    done = subprocess.run(
        [*command, "--config-file", str(PROJECT / "mkdocs.yml"), "--site-dir", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        # The theme's advertisement of its successor.
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    if done.returncode:
        told = "\n".join(line for line in done.stdout.splitlines() if line and not line.startswith("INFO"))
        raise DocsError(
            f"the documentation has mistakes:\n{told}",
            hint="mend the pages that the lines name; paths are relative to docs/",
        )
    return len(list(output.rglob("index.html")))


def serve_site(port: int) -> None:
    """Show the site on this machine, made anew after each change of a page, until Ctrl-C."""
    command = [sys.executable, "-I", "-m", "mkdocs", "serve", "--dev-addr", f"127.0.0.1:{port}"]
    subprocess.run([*command, "--config-file", str(PROJECT / "mkdocs.yml")], check=False)
