# SPDX-License-Identifier: Apache-2.0
"""Decides what `cluster upgrade` is to do, and refuses what cannot be upgraded or has nothing to upgrade.

upgrade.py carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cellblock.cluster.changing.changes import compare
from cellblock.cluster.changing.cluster_plan import PlannedCluster, plan_cluster
from cellblock.cluster.configuration import config_files
from cellblock.cluster.definition.model import ClusterSpec, SlurmVariant
from cellblock.cluster.facts import state, upgrade_record
from cellblock.cluster.facts.rotation_record import refuse_unfinished
from cellblock.cluster.facts.upgrade_record import UpgradeRecord
from cellblock.cluster.up_request import UpRequest, cluster_file, cluster_spec, kept_file, project_of
from cellblock.errors import CellblockError, UsageError
from cellblock.slurm_releases import refuse_indirect


@dataclass(frozen=True)
class Upgrade:
    """An upgrade of the cluster `known` to `spec`, whose images are to be built yet.

    `record` is that of one that was interrupted.
    """

    known: state.ClusterState
    spec: ClusterSpec
    record: UpgradeRecord | None

    @property
    def old_variant(self) -> str:
        """The variant of before."""
        return self.record.old_variant if self.record else self.known.variant

    @property
    def old_release(self) -> str:
        """The release of before."""
        return self.record.old_release if self.record else self.known.release

    @property
    def spec_as_it_was(self) -> ClusterSpec:
        """The same cluster with the variant and images of before."""
        file = self.spec.file
        runs = {
            file.image_of(one["role"], host): str(one["image"])
            for host, one in self.known.containers.items()
            if one["role"] != "worker" or host in file.nodes
        }
        before = project_of(file).variant(self.old_variant)
        return replace(
            self.spec,
            file=self.spec.file.model_copy(update={"variant": self.old_variant}),
            variant=SlurmVariant(self.old_variant, self.old_release, before.slurm.plugin_dir),
            images=runs,
        )

    def plan_as_it_was(self) -> PlannedCluster:
        """What the cluster is to be with the release of before."""
        spec = self.spec_as_it_was
        return plan_cluster(spec, state.folder(spec.name), spec.images, self.known)


def find_upgrade(request: UpRequest) -> Upgrade:
    """The upgrade that `request` asks for, of a cluster that runs.

    Raises UsageError for one that is not direct or downwards, and when there is nothing to do;
    CellblockError when the cluster does not run, or another upgrade of it is under way.
    """
    given = cluster_file(request) if request.file else None
    name = given.name if given else request.name or cluster_file(request).name
    known = state.require(name)
    refuse_unfinished(name, "its secrets may not fit each other")
    kept = kept_file(known, UpRequest(name=name, file=request.file))
    file = given or kept.model_copy(update={"variant": request.variant})
    spec = cluster_spec(replace(request, engine=known.engine), file)
    if not given:
        # The `up` of later is the last one, of the new variant.
        spec = replace(spec, options={**_options(known), **spec.options})
    record = upgrade_record.read(name)
    if record and record.phase != "done":
        if record.phase == "going back" or record.new_variant != spec.variant.name:
            upgrade_record.refuse_under_way(name, f"it cannot be upgraded to {spec.variant.name}")
        return Upgrade(known, spec, record)
    if (known.variant, known.release) == (spec.variant.name, spec.variant.release):
        raise UsageError(
            f"cluster {name} is of variant {known.variant}, Slurm {known.release}, already",
            hint="name another one: --variant VARIANT, or `variant` in the cluster file; `build.py targets` "
            "lists them",
        )
    way_back = (
        f"`{record.back_command}` takes it back to what it was before its last upgrade, Slurm "
        f"{record.old_release}"
        if record
        else f"start a cluster beside it: `build.py up --variant {spec.variant.name} --name NAME`"
    )
    refuse_indirect(known.release, spec.variant.release, way_back=way_back)
    return Upgrade(known, spec, None)


def _options(known: state.ClusterState) -> dict[str, tuple[str, ...]]:
    return {option: tuple(values) for option, values in (known.options or {}).items()}


def refuse_other_changes(upgrade: Upgrade, alive: set[str]) -> None:
    """Raise CellblockError when the cluster is not what its file says already, but for the release."""
    known, planned = upgrade.known, upgrade.plan_as_it_was()
    old = config_files.read(state.folder(known.name) / "config")
    changes = compare(
        *(known.containers, planned.target.records, alive, old, planned.target.texts, known.release)
    )
    if changes.changes or changes.files:
        said = "; ".join(change.what for change in changes.changes[:4]) or ", ".join(changes.files)
        raise CellblockError(
            f"cluster {known.name} is not what its file says; an upgrade changes the release alone: {said}",
            hint=f"first {state.same_up(known.name)} makes it so",
        )
