# SPDX-License-Identifier: Apache-2.0
"""`build.py jail verify | diff`: compares a jail volume with its image, and lists what users changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellblock.cli.jail.assemble import image_reference
from cellblock.cli.jail.change import VolumeArgument
from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption
from cellblock.launcher.failure import typeable
from cellblock.text.printable import printable, shown

if TYPE_CHECKING:
    from cellblock.jail.comparison import Differing
    from cellblock.jail.tree.walk import TooLong
    from cellblock.jail.verify import VerifyResult

_SHOWN = 40


def verify(
    volume: VolumeArgument,
    content: Annotated[
        bool, typer.Option("--content", help="Read every file, not only its metadata.")
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Restore what is damaged from the image.")] = False,
    users: Annotated[
        bool,
        typer.Option(
            "--users",
            help="With --repair: undo owners, modes and removals by users of the image's own files.",
        ),
    ] = False,
    source: Annotated[
        str | None, typer.Option(help="With --repair: where the very image lies now, if it moved.")
    ] = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Check a volume against its image; status 1 when something is damaged and was not repaired."""
    from cellblock.cli.views import make_view
    from cellblock.errors import UsageError
    from cellblock.events import Events
    from cellblock.jail import verify as code
    from cellblock.jail.difference_summary import fold

    if source is not None and not repair:
        raise UsageError("--source goes with --repair", hint="add --repair, or leave --source out")
    if users and not repair:
        raise UsageError("--users goes with --repair", hint="add --repair, or leave --users out")
    events = Events()
    with make_view(log, events):
        reference = image_reference(source, None) if source else None
        result = code.verify(volume, events, content=content, repair=repair, users=users, source=reference)
    if as_json:
        print_json(
            {
                "clean": result.is_clean,
                "entries": result.entries,
                "n_damaged": result.n_damaged,
                "n_users": result.n_users,
                "n_choices": result.n_choices,
                "left": result.n_left,
                "damaged": [[_path(one), one.what] for one in result.damaged],
                "behind_links": {_text(path): count for path, count in result.behind.items()},
                "users": [[_path(one), one.what, one.package] for one in result.users],
                "repaired": result.repaired,
                "seconds": round(result.seconds, 3),
            }
        )
    else:
        _print_users(result)
        word = "repaired" if result.repaired else "damaged"
        for line in fold(result.damaged, alike=False):
            print(printable(f"{word:9s} {line.text}"))
        if result.n_damaged > len(result.damaged):
            more = result.n_damaged - len(result.damaged)
            print(f"{'damaged':9s} ... and {more} more: `jail diff --files` lists them")
        how = "every byte of " if content else ""
        print(
            f"{how}{result.entries} files compared in {result.seconds:.1f} s: {result.n_damaged} damaged"
            f"{_repaired(result)}, {result.n_users} changed by users"
        )
        if not result.is_clean:
            again = f" again: {result.n_left} are left" if result.repaired else ""
        if not result.is_clean:
            again = f" again: {result.n_left} are left" if result.repaired else ""
            command = _again(volume, content=content, users=users)
            print(f"  next: {command}{again or ' restores them from the image'}")
        if result.n_choices:
            print(
                f"  {result.n_choices} of the users' changes are owners, modes or removals of the image's "
                f"own files; {_again(volume, content=False, users=True)} undoes these"
            )
    if not result.is_clean:
        raise typer.Exit(1)


def _again(volume: Path, *, content: bool, users: bool) -> str:
    options = (" --content" if content else "") + (" --users" if users else "")
    return typeable(f"`jail verify --repair{options} {printable(str(volume))}`")


def _repaired(result: VerifyResult) -> str:
    if not result.repaired:
        return ""
    return f", {result.n_damaged - result.n_left} of them repaired" if result.n_left else ", repaired"


def _print_users(result: VerifyResult) -> None:
    """First, so that what is damaged is not above what is only told, and one line for each cause."""
    from cellblock.jail.difference_summary import fold

    lines = fold(result.users)
    for line in lines[:_SHOWN]:
        one = line.files[0]
        text = f"{shown(one.entry.path)}: {_link(one, result)}" if one.is_link_for_folder else line.text
        print(printable(f"{'users':9s} {text}"))
    more = result.n_users - sum(len(line.files) for line in lines[:_SHOWN])
    if more:
        print(f"{'users':9s} ... and {more} more: `jail diff --files` lists them")


def _link(one: Differing, result: VerifyResult) -> str:
    count = result.behind.get(one.entry.path, 0)
    target = one.now.target.decode(errors="replace") if one.now is not None else ""
    return (
        f"a directory of the image, and a link to {printable(target)} here: "
        f"the image's {count} files in it are not looked at, and not repaired before the link is removed"
    )


def _path(one: Differing) -> str:
    return _text(one.entry.path)


def _text(path: bytes) -> str:
    return "/" + path.decode(errors="backslashreplace")


def diff(
    volume: VolumeArgument,
    tar: Annotated[
        Path | None, typer.Option(help="Write the changes to a new tar: a layer to lay over the image.")
    ] = None,
    files: Annotated[bool, typer.Option("--files", help="List each file, not only sums.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what users changed against the image, by package, size and owner."""
    from cellblock.jail.tree.walk import TooLong

    too_long = TooLong()
    try:
        _diff(volume, tar, too_long, files=files, as_json=as_json)
    finally:
        if too_long.count:
            print(f"warning: {too_long}", file=sys.stderr)


def _diff(volume: Path, tar: Path | None, too_long: TooLong, *, files: bool, as_json: bool) -> None:
    from cellblock.jail import changes as code

    if tar is not None:
        members = code.export(volume, tar, too_long)
        if as_json:
            print_json({"tar": tar, "members": members})
        else:
            print(f"{tar}: {members} members")
        return
    if files:
        for one in code.changes(volume, too_long):
            path = "/" + one.path.decode(errors="backslashreplace")
            if as_json:
                print_json({**one._asdict(), "path": path})
            else:
                line = f"{one.kind:8s} {one.size:12d} {one.owner or '-':12s} {one.package or '-':20s} {path}"
                print(printable(line))
        return
    summary = code.summarize(code.changes(volume, too_long))
    if as_json:
        groups = [vars(group) for group in summary.groups]
        print_json({"files": summary.files, "bytes": summary.bytes, "groups": groups})
        return
    print(f"{'package':24s} {'owner':12s} {'added':>8s} {'changed':>8s} {'removed':>8s} {'MB':>10s}")
    for group in summary.groups:
        print(
            f"{group.package or '-':24s} {group.owner or '-':12s} {group.added:8d} {group.changed:8d} "
            f"{group.removed:8d} {group.bytes / 1e6:10.1f}"
        )
    print(f"{summary.files} files, {summary.bytes / 1e6:.1f} MB")
