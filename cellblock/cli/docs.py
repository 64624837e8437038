# SPDX-License-Identifier: Apache-2.0
"""`build.py docs`: makes the documentation's site, and shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def docs(
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder to make the site in (default: out/docs).")
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Show it on this machine, and follow changes, until Ctrl-C.")
    ] = False,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port for --serve.")] = 8000,
) -> None:
    """Build the documentation as a site; fail for links and anchors that lead nowhere."""
    from cellblock.docs.site import build_site, serve_site
    from cellblock.paths import PROJECT

    if serve:
        serve_site(port)
        return
    folder = output or PROJECT / "out" / "docs"
    print(f"{folder / 'index.html'}: {build_site(folder)} pages")
