# SPDX-License-Identifier: Apache-2.0
"""Undoes an upgrade (`jail rollback`): merges as an upgrade does, towards the tree as it was before."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.files import durable
from cellblock.jail.apply import transaction
from cellblock.jail.apply.kept_files import DamagedError, KeptFiles, NotKeptError
from cellblock.jail.apply.staging import arranged, stage
from cellblock.jail.apply.transaction_runner import (
    Check,
    UpgradeResult,
    carry_out,
    exclusive_writer,
    keep_records,
    open_volume,
    preparing,
    refuse_new_glibc,
    write_records,
)
from cellblock.jail.merge.action_lists import ActionIndex, ActionList, kept
from cellblock.jail.merge.change_plan import Action, Finding, Plan
from cellblock.jail.merge.planner import make_plan
from cellblock.jail.tree import databases, manifest_diff
from cellblock.jail.tree.entry import Entry, order
from cellblock.jail.tree.manifest_diff import Changes, ManifestDiff, PathDiff
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.tree.unsupported import MetadataTrial
from cellblock.jail.volume import history
from cellblock.jail.volume.volume import Volume, VolumeState


def rollback(path: Path, events: Events, *, drained: bool = False) -> UpgradeResult:
    """Undo the last upgrade or repair that was not undone yet; what users changed since stays.

    Raises CellblockError when there is none, and as `upgrade`.
    """
    started = time.monotonic()
    volume, _ = open_volume(path)
    with exclusive_writer(volume, f"jail rollback {path}", events) as (check, resumed):
        if resumed is not None and resumed.plan.operation == "rollback":
            return resumed
        last = history.last_undoable(volume)
        if last is None:
            raise CellblockError(f"{path} has no upgrade to undo", hint=f"`jail history {path}` lists them")
        return _undo(volume, last, (), events, check, started, drained=drained)


def rollback_to(path: Path, number: int, events: Events, *, drained: bool = False) -> list[UpgradeResult]:
    """Undo the upgrades after this `number` of the history (0: all of them), the newest first.

    What repairs put right meanwhile stays right: of the older image, that is. Raises CellblockError when the
    volume cannot be brought to that state, and as `rollback`; what was undone until then stays undone.
    """
    started = time.monotonic()
    volume, _ = open_volume(path)
    with exclusive_writer(volume, f"jail rollback {path} --to {number}", events) as (check, resumed):
        results = [resumed] if resumed is not None and resumed.plan.operation == "rollback" else []
        since = history.undoable_since(volume, number)
        repairs: list[int] = []
        for one in since:
            if one.operation == "repair":
                repairs.append(one.number)
                continue
            results.append(_undo(volume, one, repairs, events, check, started, drained=drained))
            repairs = []
        if not results:
            raise CellblockError(
                f"{path} has had no upgrade since number {number}; nothing was changed",
                hint=f"`jail history {path}` lists all; `jail rollback {path}` undoes a repair",
            )
        return results


def _undo(
    volume: Volume,
    last: history.Done,
    repairs: Iterable[int],
    events: Events,
    check: Check,
    started: float,
    *,
    drained: bool,
) -> UpgradeResult:
    """Undo one, whose record also says that the `repairs` after it are nothing to undo any more."""
    path, state = volume.path, volume.state()
    assert state is not None  # it was there a moment ago, and only writers remove it
    with history.whole(last.folder):
        after, previous = _states(volume, last)
    if after.manifest_sha256 != state.manifest_sha256:
        raise CellblockError(
            f"{path} was filled anew since its last upgrade ({last.number}), which was of another tree; "
            "nothing was changed",
            hint=f"`jail upgrade IMAGE {path}` brings it to any image",
        )
    with preparing(volume) as folder:
        with history.whole(last.folder):
            manifest_diff.check(last.folder / "old" / "manifest")
            done = last.plan()
            changes = _backwards(last, done)
        plan = make_plan(
            changes,
            volume.root,
            operation="rollback",
            base_manifest=state.manifest_sha256,
            source=previous.source,
        )
        if done.regenerate_cache:
            plan = replace(plan, regenerate_cache=True)
        refuse_new_glibc(plan, drained=drained)
        with events.step(path.name, "make the new files"):
            plan = _stage_rollback(volume, last, done, plan, folder)
        durable.write(folder / "undoes", " ".join(str(number) for number in (last.number, *repairs)))
        # Each takes 1 KB for a file: not both while the plan is carried out.
        del done, changes
        return carry_out(volume, folder, check, events, started, plan)


def _states(volume: Volume, last: history.Done) -> tuple[VolumeState, VolumeState]:
    """Return the volume's states after and before the transaction. They are equal for a repair."""
    old, new = last.folder / "old", last.folder / "next"
    return volume.read_state(new if (new / "state.json").exists() else old), volume.read_state(old)


def _backwards(last: history.Done, done: Plan) -> Changes:
    """The changes of a transaction the other way round."""
    paths = ManifestDiff()
    for action in done.actions:
        paths[action.path] = PathDiff(action.after, action.before)
    manifest = last.folder / "old" / "manifest"

    def look_up(wanted: Iterable[bytes]) -> dict[bytes, Entry]:
        pairs = {name: paths.get(name) for name in wanted}
        before = {name: pair.new for name, pair in pairs.items() if pair is not None and pair.new is not None}
        return {**manifest_diff.look_up(manifest, {name for name in pairs if name not in before}), **before}

    return Changes(
        paths,
        databases.load(last.folder / "after"),
        databases.load(last.folder / "before"),
        look_up,
        dict,
    )


_LOST = "its old content was not kept: users exchanged it while it was to be taken away"


def _without_lost(plan: Plan, lost: set[bytes]) -> Plan:
    """The plan without the actions at the paths `lost`, whose old files users exchanged: each is listed."""
    if not lost:
        return plan
    actions, findings = ActionList(), list(plan.findings)
    for action in plan.actions:
        if action.path not in lost:
            # The file that it was to be another name of may be one that is lost.
            actions.append(replace(action, link=b"") if action.link in lost else action)
        elif not action.beside:  # of what it would lie beside there is a finding
            findings.append(Finding("conflict", action.path, _LOST))
    findings.sort(key=lambda one: order(one.path))
    return replace(plan, actions=actions.all(), findings=tuple(findings))


def _lost(plan: Plan, files: KeptFiles) -> set[bytes]:
    """The paths of the actions that cannot be done: users had exchanged the file when it was to be kept.

    Raises ValueError when kept files are damaged: half of an upgrade would be undone.
    """
    lost, faults = set(), []
    for action in plan.actions:
        entry = _needed(action, plan)
        if entry is None:
            continue
        try:
            files.usable(entry).handle.close()
        except DamagedError as error:
            faults.append(str(error))
        except NotKeptError:
            lost.add(action.path)
    if faults:
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        raise ValueError(faults[0] + more)
    return lost


def _needed(action: Action, plan: Plan) -> Entry | None:
    """The entry of an action's new file if that is to be made of a kept file."""
    entry = action.after
    if action.verb != "put" or entry is None or entry.kind != "f" or entry.digest in plan.contents:
        return None
    return entry


def _stage_rollback(volume: Volume, last: history.Done, done: Plan, plan: Plan, folder: Path) -> Plan:
    keep_records(volume, folder)
    with history.whole(last.folder):
        opened = KeptFiles(last, ActionIndex(done.actions))
    with opened as files:
        try:
            # Each kept file is opened once, when it is used: seldom one is missing.
            actions = _stage_kept(volume, plan, files, folder / "new")
        except NotKeptError:
            if (folder / "new").exists():  # not yet, when a further name of a file was not kept
                remove_tree(folder / "new")
            with history.whole(last.folder):
                lost = _lost(plan, files)
            plan = _without_lost(plan, lost)
            try:
                actions = _stage_kept(volume, plan, files, folder / "new")
            except NotKeptError as error:
                raise CellblockError(
                    f"{last.folder}: {error}; nothing was changed",
                    hint="a backup has it: `jail restore VOLUME REPO`; or upgrade to the old image",
                ) from error
    next_folder = folder / "next"
    next_folder.mkdir(mode=0o700)
    for name in transaction.RECORDS:
        os.link(last.folder / "old" / name, next_folder / name)
    final = replace(plan, actions=kept(actions))
    write_records(volume, final, folder)
    return final


def _stage_kept(volume: Volume, plan: Plan, files: KeptFiles, new: Path) -> Sequence[Action]:
    """Make the new files in `new`; the actions in their final order. Raises NotKeptError."""
    actions = arranged(plan, files.find)

    def fetch(_number: int, entry: Entry, path: bytes) -> None:
        text = plan.contents.get(entry.digest)
        if text is None:
            files.make(entry, path)
            return
        with open(path, "xb") as file:  # noqa: PTH123 - pathlib knows no paths of bytes
            file.write(text)

    # Made of a file that was made before. But where users had exchanged the file it stays theirs.
    for action in actions:
        if action.link and (entry := _needed(action, plan)):
            files.usable(entry).handle.close()
    stage(actions, new, fetch, MetadataTrial(volume.private, allow=False))
    return actions
