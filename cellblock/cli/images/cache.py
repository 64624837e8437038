# SPDX-License-Identifier: Apache-2.0
"""`build.py cache`: shows how much disk builds keep, removes the oldest of it, and checks it for damage."""

from __future__ import annotations

import re
import time
from typing import Annotated

import typer

from cellblock import paths
from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption
from cellblock.text.amount import amount_of_bytes

app = typer.Typer(help="Show, trim and check what builds keep.", invoke_without_command=True)

# What a few variants of all images take, CUDA included.
_DEFAULT_LIMIT = "20G"
_WAITING = "a build uses the cache; waiting for it"
_WORDS = {
    "lists": "package lists",
    "tree": "unpacked layers",
    "deb": "packages",
    "image": "images, which share layers",
}


@app.callback()
def cache(context: typer.Context) -> None:
    """Show, trim and check what builds keep: packages, their lists, unpacked layers, images."""
    if context.invoked_subcommand is None:
        show()


@app.command()
def show(as_json: JsonOption = False) -> None:
    """Say what is kept, and where."""
    from cellblock.store.inventory import KINDS, items, layout_of, sizes

    cache = paths.cache()
    things = items(cache)
    size = sizes(things, layout_of(cache))
    found = {}
    for kind in KINDS:
        mine = [thing for thing in things if thing.kind == kind]
        oldest = min((thing.used for thing in mine), default=None)
        found[kind] = {"count": len(mine), "bytes": size[kind], "least_recently_used": oldest}
    if as_json:
        print_json({"folder": str(cache), "bytes": sum(size.values()), "kinds": found})
        return
    print(f"{cache}: {amount_of_bytes(sum(size.values()))}")
    for kind, each in found.items():
        if each["count"]:
            day = time.strftime("%Y-%m-%d", time.localtime(each["least_recently_used"]))
            text = f"{each['count']:>6} {_WORDS[kind]}"
            print(f"{text:<44} {amount_of_bytes(size[kind]):>10}  least recently used: {day}")


@app.command()
def trim(
    max_size: Annotated[
        str, typer.Option("--max-size", help="Keep at most this much, such as 500M or 20G.")
    ] = _DEFAULT_LIMIT,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Remove what was not used for longest, until what is left fits."""
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.store.trimming import trim as trim_cache

    limit, events = _bytes(max_size), Events()
    with make_view(log, events):
        trimmed = trim_cache(paths.cache(), limit, lambda: events.info(_WAITING))
    if as_json:
        text = {"removed": trimmed.removed, "freed_bytes": trimmed.freed, "left_bytes": trimmed.left}
        print_json(text)
    else:
        removed = ", ".join(f"{count} {_WORDS[kind]}" for kind, count in trimmed.removed.items())
        print(
            f"removed {removed or 'nothing'}: {amount_of_bytes(trimmed.freed)}; "
            f"{amount_of_bytes(trimmed.left)} are left"
        )


@app.command()
def check(log: LogOption = "auto", as_json: JsonOption = False) -> None:
    """Read all that is kept again; remove what the disk has damaged."""
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.store.checking import check as check_cache

    events = Events()
    with make_view(log, events):
        checked = check_cache(paths.cache(), events, lambda: events.info(_WAITING))
    if as_json:
        names = [{"kind": one.kind, "name": one.name, "found": one.found} for one in checked.damaged]
        print_json({"whole": checked.whole, "damaged": names})
    else:
        for one in checked.damaged:
            print(f"{one.kind} {one.name}: {one.found}; removed, the next build that needs it has it again")
        print(f"{checked.whole} packages, blobs and trees are whole")
    if checked.damaged:
        raise typer.Exit(1)


def _bytes(text: str) -> int:
    """Bytes of a size such as 500M or 20G (powers of 1024). Raises UsageError."""
    from cellblock.errors import UsageError
    from cellblock.text.amount import refuse_without_unit

    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise UsageError(f"--max-size {text}: this is no size", hint="write 500M or 20G")
    none = "; nothing was removed"
    refuse_without_unit("--max-size", text.strip(), "G", done=none, otherwise="; or 0, which removes all")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))
