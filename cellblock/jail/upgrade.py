# SPDX-License-Identifier: Apache-2.0
"""Upgrades a jail volume to another image (`jail upgrade`): plans, stages new files, replaces files.

merge/ makes the plan, and apply/ carries it out.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from cellblock.errors import CellblockError
from cellblock.events import Events, Progress
from cellblock.jail.apply import transaction
from cellblock.jail.apply.local_reuse import copy_from_tree
from cellblock.jail.apply.transaction_runner import (
    UpgradeResult,
    carry_out,
    exclusive_writer,
    no_hard_links,
    open_volume,
    preparing,
    refuse_new_glibc,
    stage_files,
)
from cellblock.jail.merge.change_plan import Plan
from cellblock.jail.merge.planner import make_plan
from cellblock.jail.source import scan
from cellblock.jail.source.directory import DirectorySource
from cellblock.jail.source.find import find_source
from cellblock.jail.source.identity import Source, SourceIdentity
from cellblock.jail.source.image import NOTE
from cellblock.jail.source.known_digests import known_digests
from cellblock.jail.source.listings import LayerListings
from cellblock.jail.source.scan import Blobs, Reading, SourceScan
from cellblock.jail.source.scratch_dir import scratch_dir
from cellblock.jail.source.stream import SourceStream
from cellblock.jail.tree import databases
from cellblock.jail.tree.databases import SystemDatabases
from cellblock.jail.tree.manifest_diff import Image, between_images, checked_meanwhile
from cellblock.jail.tree.unsupported import MetadataTrial, UnsupportedMetadata
from cellblock.jail.volume.base_databases import base_databases
from cellblock.jail.volume.volume import Volume, VolumeState
from cellblock.paths import JAIL_RELEASE

if TYPE_CHECKING:
    from cellblock.jail.tree.unsupported import Loss


class MovedTreeError(CellblockError):
    """The tree is not any more what the plan was made for; nothing was changed."""


def plan_upgrade(source: str, path: Path, *, jobs: int = 8) -> Plan:
    """Plan an upgrade: the volume is only read. Raises CellblockError."""
    volume, state = open_volume(path)
    if transaction.pending(volume):
        raise CellblockError(
            f"an upgrade of {path} was interrupted", hint="run it again to finish it, then plan the next one"
        )
    if UnsupportedMetadata.of(volume.private).accepts("hard links"):
        raise no_hard_links(volume)
    origin = _source(source, volume)
    identity = origin.identify(state.source)
    if identity.id == state.source.id:
        return _nothing(state, identity)
    with scratch_dir("cellblock-plan-") as folder:
        reading = Reading(LayerListings(volume.layers), jobs, keep=False)
        base = base_databases(volume, state, reading)
        with origin.feed(folder / NOTE) as stream:
            new = _same_layers(volume, state, base, stream, folder) or scan.read(
                stream, folder, reading, known=None, at_hand=base
            )
        return _plan(volume, state, identity, base, new)


def upgrade(
    source: str,
    path: Path,
    events: Events,
    *,
    jobs: int = 8,
    expected: Plan | None = None,
    drained: bool = False,
    allow_lossy: bool = False,
) -> UpgradeResult:
    """Merge the image `source` into the volume's tree.

    With `expected`, does exactly that plan. `drained` says that no job uses the volume, which a new
    upstream version of the C library needs; `allow_lossy` to go on without what the volume's filesystem
    cannot hold of the image. Raises MovedTreeError, and CellblockError when another writer
    is at work, the space does not suffice or the packages do not fit together: the tree is then unchanged.
    """
    started = time.monotonic()
    volume, _ = open_volume(path)
    origin = _source(source, volume)
    with exclusive_writer(volume, f"jail upgrade {source} {path}", events) as (check, resumed):
        state = volume.state()
        assert state is not None  # it was there a moment ago, and only writers remove it
        identity = origin.identify(state.source)
        if identity.id == state.source.id:
            if expected is not None and not resumed and expected.actions:
                raise MovedTreeError(
                    f"{path} holds {identity} already; the plan was not carried out",
                    hint="nothing is left to do for it",
                )
            return resumed or UpgradeResult(
                _nothing(state, identity), False, 0, (), time.monotonic() - started
            )
        with preparing(volume) as folder:
            trying = MetadataTrial(volume.private, allow=allow_lossy)
            final = _prepare(volume, (origin, identity), events, folder, (jobs, drained, expected, trying))
            lost = _tell_losses(volume, trying, events)
            return replace(carry_out(volume, folder, check, events, started, final), losses=lost)


def _prepare(
    volume: Volume,
    source: tuple[Source, SourceIdentity],
    events: Events,
    folder: Path,
    how: tuple[int, bool, Plan | None, MetadataTrial],
) -> Plan:
    """Read the source, make in `folder` all that the upgrade needs; the plan as it is carried out."""
    (origin, identity), (jobs, drained, expected, trying) = source, how
    name, state = volume.path.name, volume.state()
    assert state is not None
    with events.step(name, "read the source"), origin.feed(folder / NOTE) as stream:
        reading = Reading(
            LayerListings(volume.layers),
            jobs,
            progress=lambda read: events.emit(Progress(name, read, stream.total)),
        )
        base = base_databases(volume, state, reading, events.info)
        new = _same_layers(volume, state, base, stream, folder)
        if new is None:
            with checked_meanwhile(volume.manifest), known_digests(volume.manifest) as known:
                new = scan.read(stream, folder, reading, known=known, at_hand=base)
        plan = _plan(volume, state, identity, base, new, checked=True)
        _check(plan, expected)
        refuse_new_glibc(plan, drained=drained)
        _fetch_missing(volume, plan, new, stream, reading)
    with events.step(name, "make the new files"):
        return _stage_upgrade(volume, identity, plan, new, folder, trying)


def _tell_losses(volume: Volume, trying: MetadataTrial, events: Events) -> tuple[Loss, ...]:
    found = trying.found()
    if found:
        from cellblock.jail.volume.filesystem_capabilities import warning_text

        for loss in found:
            events.warning(warning_text(volume.path, loss))
    return tuple(found)


def _source(text: str, volume: Volume) -> Source:
    """The source: anything but the volume's own tree, which would make users' work the image's."""
    found = find_source(text)
    if isinstance(found, DirectorySource) and found.path.resolve().is_relative_to(volume.path.resolve()):
        raise CellblockError(
            f"{text} is part of {volume.path} itself; nothing was changed",
            hint="name the image to upgrade to; `jail backup VOLUME REPO` keeps what users made",
        )
    if isinstance(found, DirectorySource) and volume.path.resolve().is_relative_to(found.path.resolve()):
        raise CellblockError(
            f"the volume {volume.path} lies inside its source {text}; nothing was changed",
            hint="name the directory that is an image's root",
        )
    return found


def _nothing(state: VolumeState, identity: SourceIdentity) -> Plan:
    return Plan("upgrade", state.manifest_sha256, identity)


def _same_layers(
    volume: Volume, state: VolumeState, base: SystemDatabases, stream: SourceStream, folder: Path
) -> SourceScan | None:
    """The volume's image, if the new one has its very layers: then it has its files."""
    if not state.layers or stream.digests != state.layers:
        return None
    manifest = folder / "manifest"
    shutil.copyfile(volume.manifest, manifest)
    return SourceScan(
        manifest, state.manifest_sha256, state.entries, state.bytes, base, folder / "blobs", state.layers
    )


def _plan(
    volume: Volume,
    state: VolumeState,
    identity: SourceIdentity,
    base: SystemDatabases,
    new: SourceScan,
    *,
    checked: bool = False,
) -> Plan:
    """`checked`: the volume's manifest is known to be whole."""
    if new.manifest_sha256 == state.manifest_sha256:
        return Plan("upgrade", state.manifest_sha256, identity)
    if new.entries <= 1:
        raise CellblockError(
            f"{identity} has no files, and all of the image's would be removed; nothing was changed",
            hint="is it the image that you meant?",
        )
    # Of an adopted tree no package or account is an image's to remove (docs/decisions/jail-adopt.md).
    owned = {} if state.source.is_adopted else base
    changes = between_images(
        Image(volume.manifest, owned, checked), Image(new.manifest, new.databases, checked=True)
    )
    release = changes.paths.get(os.fsencode(JAIL_RELEASE))
    if release is not None and release.new is None:
        raise CellblockError(
            f"{identity} is no jail: it has no /{JAIL_RELEASE}, which {state.source} has, and nodes would "
            "refuse it; nothing was changed",
            hint="name an image that is a jail: `jail`, or one that is made from it",
        )
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
            hint="make a new plan (`jail upgrade IMAGE VOLUME --plan`) and look at it again",
        )


def _needed(plan: Plan) -> Iterator[str]:
    """Digests of the content that the plan's new files have."""
    for action in plan.actions:
        if action.new_content and action.new_content not in plan.contents:
            yield action.new_content


def _fetch_missing(
    volume: Volume, plan: Plan, new: SourceScan, stream: SourceStream, reading: Reading
) -> None:
    """Content that the volume's image has too, under another name: from the tree, or else from the source."""
    blobs = Blobs(new.blobs)
    missing = blobs.missing(_needed(plan))
    if missing:
        copy_from_tree(volume, missing, blobs)
        missing = blobs.missing(missing)
    if missing:
        scan.fetch(stream, new.blobs.parent, reading, missing)


def _stage_upgrade(
    volume: Volume, identity: SourceIdentity, plan: Plan, new: SourceScan, folder: Path, trying: MetadataTrial
) -> Plan:
    next_folder = folder / "next"
    next_folder.mkdir(mode=0o700)
    new.manifest.rename(next_folder / "manifest")
    databases.save(next_folder / "controls", new.databases)
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    volume.write_state(
        VolumeState(identity, new.manifest_sha256, new.entries, new.bytes, now, new.layers), next_folder
    )
    final = stage_files(volume, plan, Blobs(new.blobs), folder, trying)
    trying.save(next_folder)
    return final
