# SPDX-License-Identifier: Apache-2.0
"""`build.py jail adopt`: makes a jail volume of a tree that is there already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption
from cellblock.text.printable import shown

_SHOWN = 10


def adopt(
    directory: Annotated[
        Path,
        typer.Argument(help="The root of a tree of Debian or Ubuntu, or a directory in which it is `root`."),
    ],
    volume: Annotated[
        Path | None,
        typer.Argument(
            help="The volume to be, on the same filesystem; the tree becomes VOLUME/root by one rename. "
            "Not needed where the tree is called `root` already: then it stays where it is."
        ),
    ] = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Take an existing tree as a jail volume: find its packages, write its manifest, change nothing in it."""
    from cellblock.cli.jail.volume_keys import volume_keys
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.jail.adopt import adopt as adopt_tree

    events = Events()
    with make_view(log, events):
        result = adopt_tree(directory, events, volume=volume)
    files = result.files
    if as_json:
        print_json(
            {
                **volume_keys(result),
                "packages": files.packages if files else None,
                "bytes": files.size if files else None,
                "files_changed": files.n_changed if files else None,
                "files_missing": files.n_missing if files else None,
            }
        )
        return
    if files is None:
        print(f"{result.root}: adopted already; nothing to do")
        return
    print(
        f"{result.root}: {files.packages} packages, {result.entries} files as they brought them, "
        f"{files.size / 1e6:.1f} MB, in {result.seconds:.1f} s; everything else is the site's own"
    )
    for what, count, names in (
        ("changed since their package brought them", files.n_changed, files.changed),
        ("no longer there", files.n_missing, files.missing),
    ):
        if count:
            print(f"  {count} {what}: {', '.join(map(shown, names[:_SHOWN]))}{', ...' * (count > _SHOWN)}")
    print(f"  next: build.py jail upgrade IMAGE {result.root.parent} --plan")
