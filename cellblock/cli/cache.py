"""`build.py cache`: what builds keep on this machine to be fast."""

from __future__ import annotations

import json
import re
import time
from typing import Annotated

import typer

from cellblock import paths
from cellblock.amount import amount_of_bytes
from cellblock.cli.options import JsonOption, LogOption

app = typer.Typer(help="Show, trim and check the packages that builds keep.", invoke_without_command=True)

# What a few variants of all images take, CUDA included.
_DEFAULT_LIMIT = "20G"


@app.callback()
def cache(context: typer.Context) -> None:
    """Show, trim and check the packages that builds keep."""
    if context.invoked_subcommand is None:
        show()


@app.command()
def show(as_json: JsonOption = False) -> None:
    """Say what is kept, and where."""
    from cellblock.packages.store import PackageStore
    from cellblock.packages.upkeep import usage

    store = PackageStore(paths.packages())
    used = usage(store)
    if as_json:
        print(
            json.dumps(
                {
                    "folder": str(store.folder),
                    "debs": used.debs,
                    "debs_bytes": used.debs_size,
                    "unfinished": used.parts,
                    "unfinished_bytes": used.parts_size,
                    "least_recently_used": used.oldest,
                }
            )
        )
        return
    print(f"{store.folder}: {used.debs} packages, {amount_of_bytes(used.debs_size)}")
    if used.parts:
        print(f"  {used.parts} more are not whole yet: {amount_of_bytes(used.parts_size)}")
    if used.oldest is not None:
        day = time.strftime("%Y-%m-%d", time.localtime(used.oldest))
        print(f"  least recently used: {day}")


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
    from cellblock.packages.store import PackageStore
    from cellblock.packages.upkeep import trim as trim_store

    limit, events = _bytes(max_size), Events()
    with make_view(log, events):
        trimmed = trim_store(
            PackageStore(paths.packages()),
            limit,
            lambda: events.info("a build uses the store; waiting for it"),
        )
    if as_json:
        print(json.dumps({"files": trimmed.files, "freed_bytes": trimmed.freed, "left_bytes": trimmed.left}))
    else:
        print(
            f"removed {trimmed.files} packages, {amount_of_bytes(trimmed.freed)}; "
            f"{amount_of_bytes(trimmed.left)} are left"
        )


@app.command()
def check(log: LogOption = "auto", as_json: JsonOption = False) -> None:
    """Read all packages again; remove those that the disk has damaged."""
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.packages.store import PackageStore
    from cellblock.packages.upkeep import check as check_store
    from cellblock.packages.upkeep import usage

    events, store = Events(), PackageStore(paths.packages())
    with make_view(log, events):
        damaged = check_store(store, events, lambda: events.info("a build uses the store; waiting for it"))
    left = usage(store).debs
    if as_json:
        print(json.dumps({"whole": left, "damaged": [one.name for one in damaged]}))
    else:
        for one in damaged:
            print(f"{one.name}: its bytes have SHA-256 {one.found}; removed, the next build fetches it again")
        print(f"{left} packages are whole")
    if damaged:
        raise typer.Exit(1)


def _bytes(text: str) -> int:
    """Bytes of a size such as 500M or 20G (powers of 1024). Raises UsageError."""
    from cellblock.errors import UsageError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise UsageError(f"--max-size {text}: this is no size", hint="write 500M or 20G")
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))
