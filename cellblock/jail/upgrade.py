"""Upgrade a jail volume to another image: plan, stage, and carry out."""

from __future__ import annotations

import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail import catalogue, controls, transaction
from cellblock.jail.catalogue import Blobs, Catalogue, KnownDigests
from cellblock.jail.change_plan import Plan
from cellblock.jail.execution import (
    NOTE,
    UpgradeResult,
    assembled,
    carry_out,
    preparing,
    refuse_new_glibc,
    stage_files,
    writing,
)
from cellblock.jail.planner import Image, between_images, make_plan
from cellblock.jail.source import Opened, SourceIdentity, find_source
from cellblock.jail.volume import Volume, VolumeState


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
                _check(plan, expected)
                refuse_new_glibc(plan, drained=drained)
                _fetch_missing(plan, opened, new, jobs)
            with events.step(path.name, "make the new files"):
                _stage_upgrade(volume, state, identity, plan, new, folder)
            return carry_out(volume, folder, check, events, started)


def _nothing(state: VolumeState, identity: SourceIdentity) -> Plan:
    return Plan("upgrade", state.manifest_sha256, identity)


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


def _check(plan: Plan, expected: Plan | None) -> None:
    if expected is not None and (moved := expected.same_as(plan)):
        lines = "\n  ".join(moved[:10])
        raise MovedTreeError(
            f"the tree is not what the plan was made for; nothing was changed:\n  {lines}",
            hint="make a new plan (`jail upgrade --plan`) and look at it again",
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
