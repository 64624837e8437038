# SPDX-License-Identifier: Apache-2.0
"""Checks a volume against its image (`jail verify`), and repairs what is damaged (`--repair`).

comparison.py tells what is damaged.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.events import Events, Progress
from cellblock.jail.apply import transaction
from cellblock.jail.apply.transaction_runner import (
    carry_out,
    exclusive_writer,
    open_volume,
    preparing,
    stage_files,
)
from cellblock.jail.comparison import Differing, differing, is_link, seen
from cellblock.jail.merge.action_order import in_order
from cellblock.jail.merge.change_plan import Action, Plan, Verb
from cellblock.jail.merge.intended_changes import give_back_times
from cellblock.jail.source import scan
from cellblock.jail.source.find import find_source
from cellblock.jail.source.image import NOTE
from cellblock.jail.source.listings import LayerListings
from cellblock.jail.source.scan import Blobs, Reading
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.manifest_diff import check, groups, look_up
from cellblock.jail.tree.manifest_index import opened
from cellblock.jail.tree.tree_check import Difference
from cellblock.jail.volume.base_databases import base_databases
from cellblock.jail.volume.volume import Volume, VolumeState

LISTED = 10_000
"""Files that a result names: a chown(1) of a whole tree makes millions differ, and each takes 1 KB."""
REPAIRED = 50_000
"""Files that one repair puts right: it plans all of them before it touches the first."""


@dataclass(frozen=True)
class VerifyResult:
    """`damaged` is what nobody can have meant; `users` what users changed, which is theirs.

    `n_choices` of the users' are owners, modes and removals of the image's own files; `--repair --users`
    undoes these, and counts them as damaged. Of both the first in the manifest's order are named, up to
    `LISTED`; `n_damaged` and `n_users` count all. `behind` counts the image's files below each directory that
    users put a link in the place of: of those only the link is among `users`, and a repair leaves them.
    `repaired` says that the damage was put right, of the first `REPAIRED` files; its number in history is
    that, or 0.
    """

    entries: int
    damaged: tuple[Differing, ...]
    users: tuple[Differing, ...]
    n_damaged: int
    n_users: int
    repaired: int
    seconds: float
    behind: Mapping[bytes, int] = field(default_factory=dict)
    n_choices: int = 0

    @property
    def n_left(self) -> int:
        """How many are damaged now."""
        return max(0, self.n_damaged - REPAIRED) if self.repaired else self.n_damaged

    @property
    def is_clean(self) -> bool:
        """Whether nothing is damaged now."""
        return not self.n_left


@dataclass
class _Found:
    """The result of a comparison; it keeps the first `most` damaged files, and `LISTED` of the users'.

    `choices_too`: what users chose is to be put right like damage.
    """

    most: int
    choices_too: bool = False
    damaged: list[Differing] = field(default_factory=list)
    users: list[Differing] = field(default_factory=list)
    n_damaged: int = 0
    n_users: int = 0
    n_choices: int = 0
    behind: Counter[bytes] = field(default_factory=Counter)

    def add(self, one: Differing) -> None:
        if one.behind:
            self.behind[one.behind] += 1
        elif one.is_damage or (one.is_choice and self.choices_too):
            self.n_damaged += 1
            if len(self.damaged) < self.most:
                self.damaged.append(one)
        else:
            self.n_users += 1
            self.n_choices += one.is_choice
            if len(self.users) < LISTED:
                self.users.append(one)

    def result(self, state: VolumeState, repaired: int, started: float) -> VerifyResult:
        return VerifyResult(
            state.entries,
            tuple(self.damaged[:LISTED]),
            tuple(self.users),
            self.n_damaged,
            self.n_users,
            repaired,
            time.monotonic() - started,
            self.behind,
            self.n_choices,
        )


def verify(
    path: Path,
    events: Events,
    *,
    content: bool = False,
    repair: bool = False,
    users: bool = False,
    source: str | None = None,
) -> VerifyResult:
    """Compare the tree with its image: by metadata, or with `content` by every byte.

    With `repair`, what is damaged is restored from the source that the tree was made from, or from
    `source` where that lies elsewhere now; what it replaces is kept for a rollback. With `users` too, so is
    what users chose of the image's own files: owner, mode, removal. Raises CellblockError
    when the volume holds no jail, the source is another, or a writer is at work.
    """
    started = time.monotonic()
    volume, state = open_volume(path)
    if not repair:
        if transaction.pending(volume):
            raise CellblockError(
                f"an upgrade of {path} was interrupted", hint="run it again to finish it, then verify"
            )
        found = _Found(LISTED)
        _compare(volume, state, events, found, content=content, damaged=_warning(events))
        return found.result(state, 0, started)
    with exclusive_writer(volume, f"jail verify --repair {path}", events) as (lost, _):
        state = volume.state() or state
        base_databases(volume, state, Reading(LayerListings(volume.layers)), events.info, source)
        found = _Found(REPAIRED, users)
        _compare(volume, state, events, found, content=content, damaged=_raise)
        number = 0
        if found.damaged:
            with preparing(volume) as folder:
                plan = _stage_repair(volume, state, found.damaged, source, folder)
                del found.damaged[LISTED:]
                if plan.actions:
                    number = carry_out(volume, folder, lost, events, started, plan).number
                    with opened(volume.manifest) as index:
                        give_back_times(plan.actions, os.fsencode(volume.root), index)
    return found.result(state, number, started)


def _warning(events: Events) -> Callable[[CellblockError], None]:
    return lambda error: events.warning(
        f"{error.message}; what users kept in that upgrade is listed as damaged\n  next: {error.hint}"
    )


def _raise(error: CellblockError) -> None:
    """Raise: a repair would undo what users kept in that upgrade, whose record is damaged."""
    raise error


def _compare(
    volume: Volume,
    state: VolumeState,
    events: Events,
    found: _Found,
    *,
    content: bool,
    damaged: Callable[[CellblockError], None],
) -> None:
    check(volume.manifest)
    subject = volume.path.name
    with events.step(subject, "compare"):
        for one in differing(
            volume,
            content=content,
            progress=lambda lines: events.emit(Progress(subject, lines, state.entries, "files")),
            damaged=damaged,
        ):
            found.add(one)


def _stage_repair(
    volume: Volume, state: VolumeState, damaged: Sequence[Differing], source: str | None, folder: Path
) -> Plan:
    if state.source.is_adopted and source is None:
        raise CellblockError(
            f"{volume.path} was adopted, and no image has its files; nothing was repaired",
            hint="in the jail: apt-get install --reinstall PACKAGE; or name a copy of the tree: --source DIR",
        )
    reference = source or state.source.reference
    try:
        origin = find_source(reference)
    except CellblockError as error:
        hint = error.hint if source else "where does the image lie now? Name it with --source"
        raise CellblockError(f"{error.message}; nothing was repaired", hint=hint) from None
    identity = origin.identify(state.source)
    # A copy of an adopted tree has more files than its manifest; each is checked by its digest.
    if identity.id != state.source.id and not state.source.is_adopted:
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
    blobs = Blobs(folder / "blobs")
    if wanted:
        with origin.feed(folder / NOTE) as stream:
            scan.fetch(stream, folder, Reading(LayerListings(volume.layers)), wanted)
    return stage_files(volume, plan, blobs, folder)


def _with_links(volume: Volume, actions: list[Action]) -> list[Action]:
    """Files with several names are made anew under all of them: they are to be one file again."""
    damaged = {action.path: action for action in actions}
    for names in groups(volume.manifest).values():
        if not any(name in damaged and damaged[name].verb != "metadata" for name in names):
            continue
        entries = look_up(volume.manifest, names)
        lead = b""
        with TreeAccess(os.fsencode(volume.root)) as access:
            for name in names:
                action = damaged.get(name)
                after = entries[name]
                if action is not None and action.after is not None:
                    after = after._replace(uid=action.after.uid, gid=action.after.gid)
                now = stamp = None
                try:
                    now, stamp = seen(name, access)
                except Blocked as error:
                    if is_link(error.path, access):
                        continue  # of users, in the place of a directory
                    # By something damaged, which is put right first.
                else:
                    if action is None and stamp is None:
                        continue  # removed by users
                damaged[name] = Action("put", name, now, after, stamp, "one of several names", link=lead)
                lead = lead or name
    return list(damaged.values())


def _action(one: Differing) -> Action:
    """Make the action that restores a file."""
    entry, now = one.entry, one.now
    if now is None:
        verb: Verb = "mkdir" if entry.kind == "d" else "put"
        return Action(verb, entry.path, None, entry, None, one.what)
    touched = Difference.CONTENT | Difference.SIZE | Difference.TIME | Difference.TARGET | Difference.DEVICE
    touched |= Difference.KIND | Difference.LINK | Difference.UNREADABLE
    if not one.difference & touched:
        # Its content is what it should be: a rollback of the repair needs to know that.
        before = now._replace(digest=entry.digest)
        return Action("metadata", entry.path, before, entry, one.stamp, one.what)
    verb = "mkdir" if entry.kind == "d" else "put"
    return Action(verb, entry.path, now, entry, one.stamp, one.what)
