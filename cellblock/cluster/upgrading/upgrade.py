# SPDX-License-Identifier: Apache-2.0
"""Upgrades a running cluster to a newer release of Slurm (`build.py cluster upgrade`).

In Slurm's order (Upgrade Guide, https://slurm.schedmd.com/upgrades.html, "Upgrade Procedure"): backups,
slurmdbd, slurmctld, slurmd, commands. Jobs run on until the nodes' turn. Why nodes, jail and login node go
together: docs/decisions/cluster-upgrade.md.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound

from cellblock.build import BuildRequest, build_images
from cellblock.cluster.backup import write_backup
from cellblock.cluster.changing.cluster_plan import PlannedCluster, plan_cluster
from cellblock.cluster.changing.configuration_trial import try_configuration, try_on_nodes
from cellblock.cluster.definition.model import ClusterSpec, Proof
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.images import copy_to_docker, image_ids
from cellblock.cluster.facts import state, upgrade_record
from cellblock.cluster.facts.upgrade_record import UpgradeRecord
from cellblock.cluster.proof import prove_if_free
from cellblock.cluster.up_request import UpRequest, images_of, patience_s
from cellblock.cluster.upgrading.conversion import ask_slurmdbd
from cellblock.cluster.upgrading.request import Upgrade, find_upgrade, refuse_other_changes
from cellblock.cluster.upgrading.steps import UpgradeSteps, last_of_history
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.upgrade import plan_upgrade


@dataclass(frozen=True)
class Step:
    """A step of an upgrade in words: what is done, and what jobs and users notice of it."""

    what: str
    effect: str


@dataclass(frozen=True)
class UpgradePlan:
    """What an upgrade would do. `jobs` are those that run and that the nodes wait for."""

    name: str
    old_release: str
    new_release: str
    old_variant: str
    new_variant: str
    steps: tuple[Step, ...]
    jobs: tuple[str, ...]
    goes_on: bool
    """Whether it was interrupted before."""


@dataclass(frozen=True)
class UpgradeDone:
    """An upgrade that was carried out. No proof: all nodes are busy or drained."""

    record: UpgradeRecord
    proof: Proof | None
    seconds: float


def plan(request: UpRequest) -> UpgradePlan:
    """What `upgrade` with this request would do. Nothing is changed. Raises as `find_upgrade`."""
    found = find_upgrade(request)
    known = found.known
    with connect(known.engine) as client:
        jobs = _jobs(client, known.name)
    roles = [role for role in ("database", "accounting") if role in known.containers]
    new = found.spec.variant.release
    steps = [
        Step(f"build the images of {found.spec.variant.name}", "nothing"),
        Step(
            "check: the new slurmctld takes the configuration, the new slurmdbd the database, and the new "
            "jail fits what users installed",
            "nothing",
        ),
        Step("back up slurmctld's state" + (" and the database" if roles else ""), "nothing"),
    ]
    if roles:
        steps.append(
            Step(
                f"start database and slurmdbd of Slurm {new}; it dumps the database, and converts it for as "
                "long as that takes",
                "jobs run and start; sacct and sacctmgr wait",
            )
        )
    steps += [
        Step(f"start slurmctld of Slurm {new}", "jobs run on; commands wait for some seconds"),
        Step(
            "drain the nodes and wait for their jobs",
            "jobs run to their end, new ones wait in the queue; bounded by --wait",
        ),
        Step("upgrade the jail, and start nodes and login node anew", "sessions on the login node end"),
        Step("run a job", "jobs that wait start"),
    ]
    return UpgradePlan(
        known.name,
        *(found.old_release, new, found.old_variant, found.spec.variant.name),
        tuple(steps),
        jobs,
        found.record is not None,
    )


def upgrade(request: UpRequest, events: Events) -> UpgradeDone:
    """Upgrade the cluster of `request`. Interrupted at whatever moment, the same call goes on.

    Raises as `find_upgrade`; CellblockError when a check fails (then nothing was changed), jobs do not end in
    time, or a daemon does not come up. The cluster then runs as far as it is, and the same call goes on.
    """
    started = time.monotonic()
    found = find_upgrade(request)
    patience = patience_s(request)
    with state.locked(found.known.name), connect(found.known.engine) as client:
        found = find_upgrade(request)  # another process may have been at it meanwhile
        spec, jail = _build(client, found, request, events)
        name = spec.name
        try:
            planned = plan_cluster(spec, state.folder(name), image_ids(client, spec.images), found.known)
            record = found.record or _begin(client, found, spec, jail, planned, events)
            steps = UpgradeSteps(client, found.known, record, planned, jail, patience, events)
            steps.database()
            steps.accounting()
            steps.controller()
            steps.jobs()
            steps.volume_of_jail()
            steps.configuration()
            steps.others()
        except DockerException as error:
            again = upgrade_record.read(name)
            raise CellblockError(
                f"cluster {name}: the upgrade stopped: {error}",
                hint=f"`{again.command}` goes on" if again else "`build.py doctor` checks this machine",
            ) from error
        record = replace(steps.record, phase="done")
        upgrade_record.write(record)
    proof = prove_if_free(name, events)
    return UpgradeDone(record, proof, time.monotonic() - started)


def _jobs(client: docker.DockerClient, name: str) -> tuple[str, ...]:
    """The jobs that have nodes; none while slurmctld does not answer."""
    asked = ["squeue", "--all", "--noheader", "--states=RUNNING,SUSPENDED,COMPLETING", "--format=%i"]
    try:
        return tuple(containers.execute(client, name, "controller", asked).split())
    except CellblockError:
        return ()


def _build(
    client: docker.DockerClient, found: Upgrade, request: UpRequest, events: Events
) -> tuple[ClusterSpec, str]:
    """The cluster with its new images, and the jail's. One that goes on has those that it began with."""
    file = found.spec.file
    run = images_of(file)
    built = build_images(
        BuildRequest(
            tuple(dict.fromkeys((file.jail.image, *run))),
            found.spec.variant.name,
            request.mirrors or found.known.mirrors,
            load=run,
            sites=tuple(map(Path, file.images)),
        ),
        events,
    )
    jail = built.images[file.jail.image].reference
    if found.record and all(_has_image(client, image) for image in found.record.images.values()):
        return replace(found.spec, images=dict(found.record.images)), jail
    ids = found.known.engine == "podman"
    images = {name: built.images[name].id if ids else built.images[name].reference for name in run}
    if found.known.engine == "docker":
        copy_to_docker(client, images, events)
        images = image_ids(client, images)
    return replace(found.spec, images=images), jail


def _has_image(client: docker.DockerClient, image: str) -> bool:
    try:
        client.images.get(image)
    except ImageNotFound:
        return False
    return True


def _begin(
    client: docker.DockerClient,
    found: Upgrade,
    spec: ClusterSpec,
    jail: str,
    planned: PlannedCluster,
    events: Events,
) -> UpgradeRecord:
    """Check all that can be checked, back up, and write down that the upgrade begins."""
    known, name = found.known, found.known.name
    alive = containers.alive(client, name)
    missing = sorted(set(known.containers) - alive)
    if missing:
        raise CellblockError(
            f"cluster {name}: {', '.join(missing)} does not run, and what is upgraded has to",
            hint=f"{state.same_up(name)} starts what is missing",
        )
    refuse_other_changes(found, alive)
    folder = state.folder(name)
    old = found.plan_as_it_was().target.texts
    with events.step("cluster", f"try the configuration on slurmctld {spec.variant.release}"):
        # Of before, too: it stays until nodes and commands are new.
        for texts in (old, planned.target.texts):
            try_configuration(client, name, spec.images["controller"], texts, folder)
        nodes = {
            str(one["image"]): host for host, one in planned.target.records.items() if one["role"] == "worker"
        }
        try_on_nodes(client, name, nodes, planned.target.texts, folder)
    if "accounting" in known.containers:
        with events.step("cluster", f"ask slurmdbd {spec.variant.release} about the database"):
            events.info(f"cluster: {ask_slurmdbd(client, name, spec.images['accounting'], folder)}")
    with events.step("cluster", "see that the new jail fits what users installed"):
        plan_upgrade(jail, spec.volume)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    backup = folder / f"before-upgrade-to-{spec.variant.release}-{stamp}.tar"
    write_backup(known, backup, events)
    by_host = containers.by_host(client, name)
    record = UpgradeRecord(
        name,
        *(known.variant, known.release, spec.variant.name, spec.variant.release, known.engine),
        str(backup),
        last_of_history(spec.volume),
        known.file or found.spec_as_it_was.file.model_dump(mode="json", by_alias=True),
        addresses={host: containers.address(one, name) for host, one in by_host.items()},
        images=spec.images,
    )
    upgrade_record.write(record)
    events.info(f"cluster: backed up to {backup}; `python3 {record.back_command}` restores it")
    return record
