# SPDX-License-Identifier: Apache-2.0
"""Takes a cluster back to the release before its last upgrade, from the backup made when that began.

No release of Slurm reads what a newer one wrote. So state and database become those of the backup again, and
what jobs did since is only in a second backup. The newer database is kept under another name.
"""

from __future__ import annotations

import tarfile
import time
from dataclasses import replace
from pathlib import Path

import docker
from docker.errors import DockerException

from cellblock.build import BuildRequest, build_images
from cellblock.cluster import backup
from cellblock.cluster.changing.cluster_plan import PlannedCluster, plan_cluster
from cellblock.cluster.changing.readiness import DATABASE_ANSWERS, wait_ready
from cellblock.cluster.configuration import config_files
from cellblock.cluster.database import load
from cellblock.cluster.definition.cluster_file import ClusterFile
from cellblock.cluster.definition.model import ClusterSpec, SlurmVariant
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.images import copy_to_docker, image_ids
from cellblock.cluster.facts import state, upgrade_record
from cellblock.cluster.facts.upgrade_record import UpgradeRecord
from cellblock.cluster.local import make_folders
from cellblock.cluster.proof import prove_if_free
from cellblock.cluster.up_request import images_of, project_of, volume_path
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.files import durable
from cellblock.jail.rollback import rollback_to
from cellblock.jail.volume import history
from cellblock.jail.volume.volume import Volume

# Seconds until a new database answers.
_DATABASE_S = 120.0


def find_way_back(name: str) -> UpgradeRecord:
    """The upgrade of cluster `name` that can be taken back. Raises CellblockError when there is none."""
    record = upgrade_record.read(name)
    if record is None:
        raise CellblockError(
            f"cluster {name} has had no upgrade that could be taken back",
            hint=f"`build.py status{name_option(name)}` says what it is",
        )
    if not Path(record.backup).is_file():
        raise CellblockError(
            f"{record.backup}: the backup that the way back restores is gone",
            hint="bring the file back to its place",
        )
    return record


def go_back(name: str, mirrors: tuple[str, ...], events: Events) -> UpgradeRecord:
    """Make cluster `name` what it was before its last upgrade. Interrupted, the same call goes on.

    Raises UsageError while jobs run; CellblockError when there is no way back, or a step of it fails.
    """
    record = find_way_back(name)
    spec = _spec(record, mirrors, events)
    with state.locked(name), connect(record.engine) as client:
        try:
            if record.phase != "going back":
                _refuse_busy(client, record)
                _keep_what_is(record, events)
                record = replace(record, phase="going back")
                upgrade_record.write(record)
            images = dict(spec.images)
            if record.engine == "docker":
                copy_to_docker(client, images, events)
            spec = replace(spec, images=images)
            planned = plan_cluster(spec, state.folder(name), image_ids(client, images), None)
            _take_back(client, record, planned, spec, events)
        except DockerException as error:
            raise CellblockError(
                f"cluster {name}: the way back stopped: {error}", hint=f"`{record.command}` goes on"
            ) from error
        upgrade_record.remove(name)
    prove_if_free(name, events)
    return record


def _spec(record: UpgradeRecord, mirrors: tuple[str, ...], events: Events) -> ClusterSpec:
    file = ClusterFile.model_validate(record.file).model_copy(update={"variant": record.old_variant})
    variant = project_of(file).variant(record.old_variant)
    if variant.slurm.release != record.old_release:
        raise CellblockError(
            f"cluster {record.name} was of Slurm {record.old_release}, and variant {record.old_variant} "
            f"is of {variant.slurm.release} now",
            hint="use the checkout of Cellblock that it was started by",
        )
    run = images_of(file)
    sites = tuple(map(Path, file.images))
    built = build_images(BuildRequest(run, variant.name, mirrors, load=run, sites=sites), events)
    ids = record.engine == "podman"
    return ClusterSpec(
        file,
        SlurmVariant(variant.name, variant.slurm.release, variant.slurm.plugin_dir),
        {name: built.images[name].id if ids else built.images[name].reference for name in run},
        volume_path(record.name),
        record.engine,
    )


def _refuse_busy(client: docker.DockerClient, record: UpgradeRecord) -> None:
    """Raise UsageError while jobs run: slurmctld of before knows none of them."""
    if containers.controller(client, record.name) is None:
        return
    if containers.succeeds(client, record.name, "controller", ("scontrol", "ping")):
        backup.refuse_busy(client, record.name, "the way back")


def _keep_what_is(record: UpgradeRecord, events: Events) -> None:
    """Back up what the cluster has now, as far as it runs."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    file = state.folder(record.name) / f"before-going-back-to-{record.old_release}-{stamp}.tar"
    try:
        known = state.require(record.name)
        made = backup.write_backup(known, file, events)
    except CellblockError as error:
        events.warning(
            f"cluster {record.name}: what it has now cannot be backed up, and is not: {error.message}"
        )
        return
    events.info(f"cluster: what it has now is in {file} ({len(made.files)} files)")


def _take_back(
    client: docker.DockerClient,
    record: UpgradeRecord,
    planned: PlannedCluster,
    spec: ClusterSpec,
    events: Events,
) -> None:
    """Each step again until the last is over: they end in the same."""
    name, folder, target = record.name, state.folder(record.name), planned.target
    with events.step("cluster", "stop"):
        containers.remove(client, name)
    _jail(record, spec.volume, events)
    target.make_secrets(folder)
    config_files.write(folder / "config", target.texts)
    with tarfile.open(record.backup, "r:") as archive:
        found = backup.check_backup(archive, Path(record.backup))
        if "database" in target.containers:
            _set_aside(folder, record)
            make_folders(folder)
            with events.step("cluster", "load the database of before"):
                containers.create(client, name, spec.engine, [target.containers["database"]])
                _wait_for_database(client, name)
                with backup.member(archive, backup.DATABASE) as packed:
                    load(target.state, packed)
                containers.remove(client, name)
        elif "accounting" in target.containers:
            with (
                events.step("cluster", "load the database of before"),
                backup.member(archive, backup.DATABASE) as packed,
            ):
                load(target.state, packed)
        make_folders(folder)
        backup.replace_state(archive, found, folder)
    with events.step("cluster", "start containers"):
        containers.create(client, name, spec.engine, target.containers.values())
        state.write(target.state)
    with events.step("cluster", "wait for Slurm"):
        wait_ready(client, target.state, resume=True)
    backup.end_lost(client, name, events)


def _pending(volume: Path) -> bool:
    """Whether the jail's upgrade, or its rollback, was interrupted."""
    found = Volume(volume)
    return (found.private / "transaction").is_dir()


def _jail(record: UpgradeRecord, volume: Path, events: Events) -> None:
    """The jail of before; what users changed since stays."""
    if _pending(volume) or history.undoable_since(Volume(volume), record.jail_number):
        rollback_to(volume, record.jail_number, events, drained=True)


def _set_aside(folder: Path, record: UpgradeRecord) -> None:
    """Keep the newer database under another name; the server of before does not read its files, either."""
    # Each upgrade's own: by the time of its backup.
    aside = folder / f"database-of-{record.new_release}-{Path(record.backup).stem.rpartition('-')[2]}"
    if aside.exists():
        return  # this way back was interrupted: what has the name `database` is of before already
    (folder / "database").rename(aside)
    durable.sync_directory(folder)


def _wait_for_database(client: docker.DockerClient, name: str) -> None:
    if not containers.succeeds_within(client, name, "database", DATABASE_ANSWERS, _DATABASE_S):
        raise CellblockError(
            f"cluster {name}: the new database does not answer after {_DATABASE_S:.0f} s"
            f"{containers.last_lines(client, name)}",
            hint="its last lines are above; run this again",
        )
