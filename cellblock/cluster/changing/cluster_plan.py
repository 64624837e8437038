# SPDX-License-Identifier: Apache-2.0
"""Works out a cluster for this machine: its containers, their records, and Slurm's configuration files.

`up` starts or changes the cluster by this plan, and `cluster diff` compares it with what runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cellblock.cluster.changing.apply import Target
from cellblock.cluster.changing.changes import record, running_memory
from cellblock.cluster.configuration import config_files, template_facts
from cellblock.cluster.definition.external_database import read_password
from cellblock.cluster.definition.model import ClusterSpec
from cellblock.cluster.engine.container_specs import plan
from cellblock.cluster.facts import host, state
from cellblock.cluster.facts.host import CgroupMode


@dataclass(frozen=True)
class PlannedCluster:
    """A target, with what follows from this machine: Slurm's cgroups."""

    target: Target
    cgroup: CgroupMode


def plan_cluster(
    spec: ClusterSpec, folder: Path, image_ids: Mapping[str, str], known: state.ClusterState | None
) -> PlannedCluster:
    """Plan the cluster `spec`, whose state is in `folder`, and which is `known` when it runs.

    `image_ids` maps names of images to their ids.
    """
    cgroup = template_facts.cgroup_for(spec, host.cgroup_mode())
    running = running_memory(known.containers) if known else {}
    facts = template_facts.facts(spec, host.cpus(), host.memory_mb(), running)
    containers = plan(spec, facts, folder, host.container_limits(), cgroup, host.pids_limit())
    records = {
        one.hostname: record(one, image_ids[spec.file.image_of(one.role, one.hostname)]) for one in containers
    }
    new = state.ClusterState(
        spec.name,
        spec.variant.name,
        spec.variant.release,
        spec.engine,
        list(spec.file.nodes),
        list(spec.file.default_nodes),
        spec.file.login.ssh_port,
        str(spec.volume),
        records,
        spec.file.model_dump(mode="json", by_alias=True),
        {option: list(values) for option, values in spec.options.items()},
    )
    external = spec.file.accounting.external if spec.file.accounting else None
    password = read_password(external) if external else None
    by_name = {one.hostname: one for one in containers}
    target = Target(new, by_name, records, config_files.render(spec, facts, cgroup), password)
    return PlannedCluster(target, cgroup)
