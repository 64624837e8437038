"""Upgrade a jail volume to another image, and back: plan, stage, carry out, and finish what was interrupted.

What a crash leaves: before the commit a folder that the next run removes; after it a transaction that the
next run finishes, whichever command that is. Who may run at once: one writer a volume; jobs go on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.events import Events, Progress, State, SubjectState
from cellblock.jail import catalogue, change_plan, controls, delta, history, transaction
from cellblock.jail.apt_lock import apt_locked
from cellblock.jail.catalogue import Blobs, Catalogue, KnownDigests
from cellblock.jail.change_plan import Finding, Plan
from cellblock.jail.delta import Delta
from cellblock.jail.entry import Entry
from cellblock.jail.planner import Changes, Image, between_images, make_plan
from cellblock.jail.source import Opened, Source, SourceIdentity, find_source, release
from cellblock.jail.staging import arranged, stage
from cellblock.jail.transaction import Transaction, kept_file
from cellblock.jail.volume import Volume, VolumeState

NOTE = "mounted-image"

Check = Callable[[], None]
"""Raises when another writer took the volume over."""


@dataclass(frozen=True)
class UpgradeResult:
    """What was done, or with `changed` false would be. `number` is that in history; 0 for none.

    `late` lists what users changed between the plan and its execution.
    """

    plan: Plan
    changed: bool
    number: int
    late: tuple[Finding, ...]
    seconds: float


class MovedTreeError(CellblockError):
    """The tree is not any more what the plan was made for; nothing was changed."""


def plan_upgrade(source: str, path: Path, *, jobs: int = 8) -> Plan:
    """What `upgrade` would do now; the volume is only read. Raises CellblockError."""
    volume, state = assembled(path)
    if transaction.pending(volume):
        raise CellblockError(
            f"an upgrade of {path} was interrupted", hint="run it again to finish it, then plan the next one"
        )
    origin = find_source(source)
    identity = origin.identify(state.source)
    if identity.id == state.source.id:
        return _nothing(state, identity)
    with tempfile.TemporaryDirectory(prefix="cellblock-plan-") as temporary:
        folder = Path(temporary)
        with origin.open(folder / NOTE) as opened:
            new = catalogue.read(opened, folder, None, jobs)
        return _plan(volume, state, identity, new)


def upgrade(
    source: str,
    path: Path,
    events: Events,
    *,
    jobs: int = 8,
    expected: Plan | None = None,
    drained: bool = False,
) -> UpgradeResult:
    """Merge the image `source` into the volume's tree.

    With `expected`, does exactly that plan. `drained` says that no job uses the volume, which a new
    upstream version of the C library needs. Raises MovedTreeError, and CellblockError when another writer
    is at work, the space does not suffice or the packages do not fit together: the tree is then unchanged.
    """
    started = time.monotonic()
    volume, _ = assembled(path)
    origin = find_source(source)
    with writing(volume, f"jail upgrade {source} {path}", events) as (check, resumed):
        state = volume.state()
        assert state is not None  # it was there a moment ago, and only writers remove it
        identity = origin.identify(state.source)
        if identity.id == state.source.id:
            if expected is not None and not resumed and expected.actions:
                raise MovedTreeError(f"{path} holds {identity} already; the plan was not carried out")
            return resumed or UpgradeResult(
                _nothing(state, identity), False, 0, (), time.monotonic() - started
            )
        with preparing(volume) as folder:
            with events.step(path.name, "read the source"), origin.open(folder / NOTE) as opened:
                new = catalogue.read(opened, folder, KnownDigests(volume.manifest), jobs)
                plan = _plan(volume, state, identity, new)
                _check(plan, expected, drained)
                _fetch_missing(plan, opened, new, jobs)
            with events.step(path.name, "make the new files"):
                _stage_upgrade(volume, state, identity, plan, new, folder)
            return carry_out(volume, folder, check, events, started)


def rollback(path: Path, events: Events, *, drained: bool = False) -> UpgradeResult:
    """Undo the last upgrade or repair that was not undone yet; what users changed since stays.

    Raises CellblockError when there is none, and as `upgrade`.
    """
    started = time.monotonic()
    volume, _ = assembled(path)
    with writing(volume, f"jail rollback {path}", events) as (check, resumed):
        if resumed is not None and resumed.plan.operation == "rollback":
            return resumed
        last = history.last_undoable(volume)
        if last is None:
            raise CellblockError(f"{path} has no upgrade to undo", hint=f"`jail history {path}` lists them")
        with preparing(volume) as folder:
            done = last.plan()
            changes = _backwards(volume, last, done)
            state = volume.state()
            assert state is not None
            previous = volume.read_state(last.folder / "old")
            plan = make_plan(
                changes,
                volume.root,
                operation="rollback",
                base_manifest=state.manifest_sha256,
                source=previous.source,
            )
            if done.regenerate_cache:
                plan = replace(plan, regenerate_cache=True)
            _check(plan, None, drained)
            with events.step(path.name, "make the new files"):
                _stage_rollback(volume, last, done, plan, folder)
            return carry_out(volume, folder, check, events, started)


def assembled(path: Path) -> tuple[Volume, VolumeState]:
    """The volume at `path` and what it holds. Raises CellblockError when it holds nothing."""
    if os.geteuid() != 0:
        raise CellblockError(
            "a jail keeps the owners of its files, which only root can set", hint="run this as root (sudo)"
        )
    volume = Volume(path.absolute())
    state = volume.state()
    if state is None:
        raise CellblockError(
            f"{path} holds no jail yet", hint="`jail assemble SOURCE VOLUME` makes one; an upgrade changes it"
        )
    return volume, state


def _nothing(state: VolumeState, identity: SourceIdentity) -> Plan:
    return Plan("upgrade", state.manifest_sha256, identity)


@contextlib.contextmanager
def writing(volume: Volume, what: str, events: Events) -> Iterator[tuple[Check, UpgradeResult | None]]:
    """Be the only writer, of the volume and of its packages; first finish what was interrupted."""
    started = time.monotonic()
    with volume.lock(what, events.info) as check, apt_locked(volume.root):
        for leftover in volume.leftovers():
            events.info(f"removing what an interrupted run left in {leftover}")
            release(leftover / NOTE)
            shutil.rmtree(os.fsencode(leftover))
        interrupted = transaction.pending(volume)
        resumed = None
        if interrupted is not None:
            events.info(f"finishing what was interrupted: {interrupted.folder}")
            resumed = _run(volume, interrupted, check, events, started)
        yield check, resumed


@contextlib.contextmanager
def preparing(volume: Volume) -> Iterator[Path]:
    """A folder for the transaction. Removed at the end unless it was committed, and so renamed."""
    try:
        with volume.staging() as folder:
            yield folder
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CellblockError(
                f"{volume.path} is full; the tree was not changed",
                hint="free some space or use a larger volume, then run this again",
            ) from error
        where = os.fsdecode(error.filename) if error.filename else str(volume.path)
        raise CellblockError(f"cannot upgrade {volume.path}: {where}: {error.strerror or error}") from error


def _image(volume: Volume, state: VolumeState) -> Image:
    """What the volume's tree was made from."""
    try:
        return Image(volume.manifest, controls.load(volume.private / "controls"))
    except FileNotFoundError:
        raise CellblockError(
            f"{volume.private / 'controls'} is missing: this volume was made by an older Cellblock",
            hint=f"assemble {state.source.reference} into another volume and copy the file from there",
        ) from None


def _plan(volume: Volume, state: VolumeState, identity: SourceIdentity, new: Catalogue) -> Plan:
    changes = between_images(_image(volume, state), Image(new.manifest, new.controls))
    return make_plan(
        changes,
        volume.root,
        operation="upgrade",
        base_manifest=state.manifest_sha256,
        source=identity,
    )


def _check(plan: Plan, expected: Plan | None, drained: bool) -> None:
    if expected is not None and (moved := expected.same_as(plan)):
        lines = "\n  ".join(moved[:10])
        raise MovedTreeError(
            f"the tree is not what the plan was made for; nothing was changed:\n  {lines}",
            hint="make a new plan (`jail upgrade --plan`) and look at it again",
        )
    if plan.glibc is not None and not drained:
        before, after = plan.glibc
        raise CellblockError(
            f"this brings the C library from {before} to {after}, and programs that start in that moment "
            "would load one half of each; nothing was changed",
            hint="let no job run on the volume (drain the nodes), then run this again with --drained",
        )


def _needed(plan: Plan) -> set[str]:
    """Digests of the content that the plan's new files have."""
    return {
        action.after.digest
        for action in plan.actions
        if action.verb == "put" and action.after is not None and action.after.kind == "f" and not action.link
    } - set(plan.contents)


def _fetch_missing(plan: Plan, opened: Opened, new: Catalogue, jobs: int) -> None:
    missing = Blobs(new.blobs).missing(_needed(plan))
    if missing:
        catalogue.fetch(opened, new, missing, jobs)


def _stage_upgrade(
    volume: Volume, state: VolumeState, identity: SourceIdentity, plan: Plan, new: Catalogue, folder: Path
) -> None:
    next_folder = folder / "next"
    next_folder.mkdir(mode=0o700)
    new.manifest.rename(next_folder / "manifest")
    controls.save(next_folder / "controls", new.controls)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    volume.write_state(VolumeState(identity, new.manifest_sha256, new.entries, new.bytes, now), next_folder)
    stage_files(volume, plan, Blobs(new.blobs), folder)


def stage_files(volume: Volume, plan: Plan, blobs: Blobs, folder: Path) -> None:
    """Make the plan's new files of the content in `blobs`, which are used up, and write the plan down."""

    def find(entry: Entry) -> Path | None:
        path = Path(os.fsdecode(blobs.path(entry.digest)))
        return path if path.exists() else None

    actions = arranged(plan, find)
    last = {
        action.after.digest: number
        for number, action in enumerate(actions)
        if action.verb == "put" and action.after is not None and action.after.kind == "f" and not action.link
    }
    numbers = {id(action.after): number for number, action in enumerate(actions)}

    def fetch(entry: Entry, path: bytes) -> None:
        text = plan.contents.get(entry.digest)
        if text is not None:
            with open(path, "xb") as file:  # noqa: PTH123 - pathlib knows no paths of bytes
                file.write(text)
        elif last[entry.digest] == numbers[id(entry)]:
            os.rename(blobs.path(entry.digest), path)  # noqa: PTH104
        else:
            shutil.copyfile(blobs.path(entry.digest), path)

    stage(actions, folder / "new", fetch)
    shutil.rmtree(blobs.folder)
    _write_records(volume, replace(plan, actions=tuple(actions)), folder)


def _write_records(volume: Volume, plan: Plan, folder: Path) -> None:
    """What a rollback needs: the volume's records, and the tree's databases before and after."""
    (folder / "kept").mkdir(mode=0o700)
    (folder / "old").mkdir(mode=0o700)
    for name in transaction.RECORDS:
        os.link(volume.private / name, folder / "old" / name)
    before = controls.of_root(volume.root)
    after = dict(before)
    for action in plan.actions:
        if controls.is_control(action.path):
            if action.after is None:
                after.pop(action.path, None)
            elif action.after.digest in plan.contents:
                after[action.path] = plan.contents[action.after.digest]
    new = folder / "new"
    for number, action in enumerate(plan.actions):
        if action.verb == "put" and controls.is_control(action.path):
            after[action.path] = (new / str(number)).read_bytes()
    controls.save(folder / "before", before)
    controls.save(folder / "after", after)
    change_plan.write(plan, folder / "plan")


def _backwards(volume: Volume, last: history.Done, done: Plan) -> Changes:
    """The changes of a transaction the other way round."""
    paths = {action.path: Delta(action.after, action.before) for action in done.actions}
    manifest = last.folder / "old" / "manifest"
    before = {action.path: action.before for action in done.actions if action.before is not None}

    def look_up(wanted: object) -> dict[bytes, Entry]:
        names = set(wanted)  # type: ignore[call-overload]
        found = delta.look_up(manifest, {name for name in names if name not in before})
        return {**found, **{name: before[name] for name in names if name in before}}

    return Changes(
        paths,
        controls.load(last.folder / "after"),
        controls.load(last.folder / "before"),
        look_up,
        dict,
    )


def _stage_rollback(volume: Volume, last: history.Done, done: Plan, plan: Plan, folder: Path) -> None:
    places = {action.path: kept_file(last.folder, number) for number, action in enumerate(done.actions)}
    by_digest = {
        action.before.digest: places[action.path]
        for action in done.actions
        if action.before is not None and action.before.kind == "f"
    }

    def place(entry: Entry) -> Path | None:
        path = places.get(entry.path)
        if path is None or not path.exists():
            path = by_digest.get(entry.digest)  # beside a file that users keep
        return path

    actions = arranged(plan, place)

    def fetch(entry: Entry, path: bytes) -> None:
        text = plan.contents.get(entry.digest)
        if text is not None:
            with open(path, "xb") as file:  # noqa: PTH123 - pathlib knows no paths of bytes
                file.write(text)
            return
        kept = place(entry)
        if kept is None or not kept.exists():
            raise CellblockError(
                f"{last.folder} does not hold the old /{os.fsdecode(entry.path)}; nothing was changed"
            )
        # A name of the very file that was there: with all its attributes, and no space needed.
        os.link(kept, path, follow_symlinks=False)

    stage(actions, folder / "new", fetch)
    next_folder = folder / "next"
    next_folder.mkdir(mode=0o700)
    for name in transaction.RECORDS:
        os.link(last.folder / "old" / name, next_folder / name)
    (folder / "undoes").write_text(str(last.number))
    _write_records(volume, replace(plan, actions=tuple(actions)), folder)


def carry_out(volume: Volume, folder: Path, check: Check, events: Events, started: float) -> UpgradeResult:
    running = Transaction(volume, folder)
    check()
    running.commit()
    return _run(volume, running, check, events, started)


def _run(volume: Volume, running: Transaction, check: Check, events: Events, started: float) -> UpgradeResult:
    subject = volume.path.name
    events.emit(SubjectState(subject, "running"))
    ended: State = "failed"
    try:
        with events.step(subject, "replace files"):
            plan = running.run(check, lambda done, total: _tick(events, subject, done, total))
            if plan.regenerate_cache:
                _make_ld_cache(volume.root, events)
        previous = volume.read_state(running.folder / "old").source
        number = int(running.number())
        undoes = running.folder / "undoes"
        if undoes.exists():
            undone = volume.private / "history" / f"{int(undoes.read_text()):04d}"
            if undone.exists():
                (undone / "undone-by").write_text(str(number))
        running.finish(
            {
                "operation": plan.operation,
                "source": str(plan.source),
                "previous": str(previous),
                "finished_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "actions": len(plan.actions),
            }
        )
        history.prune(volume)
        ended = "done"
    finally:
        events.emit(SubjectState(subject, ended, seconds=time.monotonic() - started))
    return UpgradeResult(plan, True, number, tuple(running.late), time.monotonic() - started)


def _tick(events: Events, subject: str, done: int, total: int) -> None:
    if done % 256 == 0 or done == total:
        events.emit(Progress(subject, done, total, "files"))


def _make_ld_cache(root: Path, events: Events) -> None:
    """The loader's cache lists users' libraries too, so neither the image's nor the old one is right.

    ldconfig(8) changes its root before it looks at anything, and only reads; -X: it makes no links.
    """
    from cellblock.process import Programs

    done = Programs().run(["/sbin/ldconfig", "-X", "-r", str(root)], check=False)
    if done.status != 0:
        events.warning(f"ldconfig failed in {root}: {' '.join(done.tail)}; run it in the jail")


__all__ = ["MovedTreeError", "Source", "UpgradeResult", "plan_upgrade", "rollback", "upgrade"]
