"""Check a volume against what its image is, and put right what is damaged."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.events import Events, Progress
from cellblock.jail import catalogue, layout, transaction
from cellblock.jail.action_order import in_order
from cellblock.jail.catalogue import Blobs, Catalogue
from cellblock.jail.change_plan import Action, Plan, Verb
from cellblock.jail.comparison import Differing, differing
from cellblock.jail.delta import check, groups, look_up
from cellblock.jail.execution import (
    NOTE,
    assembled,
    carry_out,
    preparing,
    stage_files,
    writing,
)
from cellblock.jail.source import find_source
from cellblock.jail.tree_access import Blocked, Stamp, TreeAccess
from cellblock.jail.tree_check import Difference
from cellblock.jail.volume import Volume, VolumeState


@dataclass(frozen=True)
class VerifyResult:
    """`damaged` is what nobody can have meant; `users` what users changed, which is theirs.

    `repaired` says that the damage was put right; its number in history is that, or 0.
    """

    entries: int
    damaged: tuple[Differing, ...]
    users: tuple[Differing, ...]
    repaired: int
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether nothing is damaged now."""
        return not self.damaged or self.repaired > 0


def verify(
    path: Path, events: Events, *, content: bool = False, repair: bool = False, source: str | None = None
) -> VerifyResult:
    """Compare the tree with its image: by metadata, or with `content` by every byte.

    With `repair`, what is damaged is restored from the source that the tree was made from, or from
    `source` where that lies elsewhere now; what it replaces is kept for a rollback. Raises CellblockError
    when the volume holds no jail, the source is another, or a writer is at work.
    """
    started = time.monotonic()
    volume, state = assembled(path)
    if not repair:
        if transaction.pending(volume):
            raise CellblockError(
                f"an upgrade of {path} was interrupted", hint="run it again to finish it, then verify"
            )
        damaged, users = _compare(volume, state, events, content=content)
        return VerifyResult(state.entries, damaged, users, 0, time.monotonic() - started)
    with writing(volume, f"jail verify --repair {path}", events) as (lost, _):
        state = volume.state() or state
        damaged, users = _compare(volume, state, events, content=content)
        number = 0
        if damaged:
            with preparing(volume) as folder:
                plan = _stage_repair(volume, state, damaged, source, folder)
                if plan.actions:
                    number = carry_out(volume, folder, lost, events, started).number
    return VerifyResult(state.entries, damaged, users, number, time.monotonic() - started)


def _compare(
    volume: Volume, state: VolumeState, events: Events, *, content: bool
) -> tuple[tuple[Differing, ...], tuple[Differing, ...]]:
    check(volume.manifest)
    subject = volume.path.name
    with events.step(subject, "compare"):
        found = list(
            differing(
                volume,
                content=content,
                progress=lambda lines: events.emit(Progress(subject, lines, state.entries, "files")),
            )
        )
    return tuple(one for one in found if one.is_damage), tuple(one for one in found if not one.is_damage)


def _stage_repair(
    volume: Volume, state: VolumeState, damaged: tuple[Differing, ...], source: str | None, folder: Path
) -> Plan:
    reference = source or state.source.reference
    origin = find_source(reference)
    identity = origin.identify(state.source)
    if identity.id != state.source.id:
        raise CellblockError(
            f"{volume.path} was made from {state.source}, and that is now {identity}; nothing was repaired",
            hint="name a copy of the very image with --source",
        )
    actions = _with_links(volume, [_action(one) for one in damaged])
    plan = Plan(
        "repair",
        state.manifest_sha256,
        state.source,
        tuple(in_order(actions, downgrade=False)),
    )
    wanted = {
        action.after.digest
        for action in plan.actions
        if action.verb == "put" and action.after is not None and action.after.kind == "f"
    }
    new = Catalogue(volume.manifest, state.manifest_sha256, state.entries, state.bytes, {}, folder / "blobs")
    blobs = Blobs(new.blobs)
    with origin.open(folder / NOTE) as opened:
        catalogue.fetch(opened, new, set(wanted), jobs=8)
    for digest in wanted:
        blob = Path(blobs.path(digest).decode())
        if not blob.exists() or layout.sha256_of(blob) != digest:
            raise CellblockError(
                f"{state.source} does not have the content that this was made from; nothing was repaired",
                hint="its files changed since; name a copy of the very image with --source",
            )
    stage_files(volume, plan, blobs, folder)
    return plan


def _with_links(volume: Volume, actions: list[Action]) -> list[Action]:
    """Files with several names are made anew under all of them: they are to be one file again."""
    damaged = {action.path: action for action in actions}
    for first, names in groups(volume.manifest).items():
        if not any(name in damaged and damaged[name].verb != "metadata" for name in names):
            continue
        entries = look_up(volume.manifest, names)
        with TreeAccess(os.fsencode(volume.root)) as access:
            for name in names:
                action = damaged.get(name)
                after = entries[name]
                if action is not None and action.after is not None:
                    after = after._replace(uid=action.after.uid, gid=action.after.gid)
                try:
                    status = access.status(name)
                except Blocked:  # by something damaged, which is put right first
                    status = None
                now = access.entry(name, status, "") if status is not None else None
                stamp = Stamp.of(status) if status is not None else None
                link = b"" if name == first else first
                damaged[name] = Action("put", name, now, after, stamp, "one of several names", link=link)
    return list(damaged.values())


def _action(one: Differing) -> Action:
    """What makes a file as it should be."""
    entry, now = one.entry, one.now
    if now is None:
        verb: Verb = "mkdir" if entry.kind == "d" else "put"
        return Action(verb, entry.path, None, entry, None, one.what)
    touched = Difference.CONTENT | Difference.SIZE | Difference.TIME | Difference.TARGET | Difference.DEVICE
    touched |= Difference.KIND | Difference.LINK | Difference.UNREADABLE
    if not one.difference & touched:
        return Action("metadata", entry.path, now, entry, one.stamp, one.what)
    verb = "mkdir" if entry.kind == "d" else "put"
    return Action(verb, entry.path, now, entry, one.stamp, one.what)
