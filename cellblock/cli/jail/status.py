# SPDX-License-Identifier: Apache-2.0
"""`build.py jail status`: prints what a volume holds, who uses it, and what can be undone and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from cellblock.cli.jail.change import VolumeArgument
from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption
from cellblock.cli.rows import print_rows
from cellblock.launcher.failure import typeable
from cellblock.text.amount import amount_of_bytes
from cellblock.text.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.jail.status import Status
    from cellblock.jail.volume.holders import Writer

_LOW = 0.05
"""Of bytes or inodes: below it, what is free is said to be little."""


def status(volume: VolumeArgument, as_json: JsonOption = False) -> None:
    """Say what a volume holds, who has it, and what can be undone; status 1 when a record is damaged.

    It writes nothing, and works while an upgrade runs.
    """
    from cellblock.jail import status as code

    found = code.status(volume)
    if as_json:
        print_json(found.record())
    else:
        print_rows(((name, printable(text)) for name, text in _lines(found)), indent="")
        for problem in found.problems:
            print(printable(f"{'damaged':9s} {problem.message}"))
            print(typeable(printable(f"          next: {problem.hint}")))
    if found.problems:
        raise typer.Exit(1)


def line_of(found: Status) -> str:
    """The volume in one line, for those that show other things."""
    held = str(found.state.source) if found.state else "no tree that can be told"
    backup = f"backup {found.backup.finished_at}" if found.backup else "no backup noted"
    writer = f"; written by `{found.writer.what}`" if found.writer else ""
    damaged = f"; {len(found.problems)} of its records damaged" if found.problems else ""
    free = amount_of_bytes(found.space.free_bytes)
    return f"{held}; {found.undoable} to undo, {backup}, {free} free{writer}{damaged}"


def _lines(found: Status) -> Iterator[tuple[str, str]]:
    """A word and what it is about."""
    state = found.state
    if state:
        size = f"{state.entries} files, {amount_of_bytes(state.bytes)}"
        yield "image", f"{state.source.reference}, since {state.assembled_at}; {size} of it"
        yield "digest", state.source.id
    elif not found.problems:
        yield "image", "none yet: it is being written"
    yield "writer", _writer(found.writer) if found.writer else "none"
    if found.unfinished:
        yield (
            "",
            (
                "an upgrade is being carried out"
                if found.writer
                else typeable(
                    "an upgrade was interrupted: run the same `jail upgrade` again, which finishes it"
                )
            ),
        )
    nodes = ", ".join(found.mounts.nodes) or "no container"
    steps, inside = _count(found.mounts.steps, "step or session"), _count(found.mounts.processes, "process")
    yield "readers", f"on this machine {nodes}; {steps} in it, of {inside}"
    if found.mounts.unseen:
        silent = _count(found.mounts.unseen, "process")
        yield "", f"and perhaps {silent} of this machine that cannot be looked at: executing without an end"
    last = found.last_change
    if last:
        change = f"{last.operation} {last.number}, {last.finished_at}: {last.previous} -> {last.source}"
        yield "changed", change + (f", undone by {last.undone_by}" if last.undone_by else "")
    else:
        yield "changed", "not since it was assembled"
    yield "rollback", f"{found.undoable} can be undone; records of {len(found.kept)} are kept"
    if found.backup:
        made = found.backup
        unread = f"; {made.unread} files could not be read" if made.unread else ""
        snapshot = f"{made.finished_at}: snapshot {made.snapshot[:8]} of {made.name} in {made.repository}"
        yield "backup", snapshot + unread
    else:
        yield "backup", "none is noted in the volume"
    yield "space", _space(found)
    if found.homes is not None:
        yield "homes", f"{_count(len(found.homes), 'folder')} in /home"


def _writer(one: Writer) -> str:
    state = {True: "alive", False: "dead: the next writer takes over", None: "of another host"}[one.alive]
    if not one.what:
        return "one that left no record of itself"
    who = f"`{one.what}` (process {one.pid} on {one.host}, since {one.since})"
    return f"{who}, {state}, heard {one.heard_s:.0f} s ago"


def _space(found: Status) -> str:
    space = found.space
    text = f"{amount_of_bytes(space.free_bytes)} of {amount_of_bytes(space.bytes)} free"
    text += ", little" if space.free_bytes < _LOW * space.bytes else ""
    if not space.inodes:
        return f"{text}; its filesystem does not count inodes"
    text += f"; {space.free_inodes} of {space.inodes} inodes free"
    return text + (", few" if space.free_inodes < _LOW * space.inodes else "")


def _count(number: int, word: str) -> str:
    plural = {"process": "processes", "step or session": "steps or sessions"}.get(word, f"{word}s")
    return f"{number} {word if number == 1 else plural}"
