# SPDX-License-Identifier: Apache-2.0
"""Works out the values that the templates of deploy/slurm see as `cluster`, from a cluster file.

They also depend on the machine's processors and memory. config_files.py renders the templates with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cellblock.cluster.configuration.health import HealthFacts, health_facts
from cellblock.cluster.configuration.on_demand import OnDemandFacts, on_demand_facts
from cellblock.cluster.configuration.secrets import JWT_KEY
from cellblock.cluster.configuration.slurm_features import SlurmFeatures
from cellblock.cluster.definition.amounts import mebibytes, slurm_time
from cellblock.cluster.definition.cluster_file import ClusterFile, Partition
from cellblock.cluster.definition.external_database import ExternalDatabase, read_authorities
from cellblock.cluster.definition.model import SlurmVariant
from cellblock.cluster.definition.names import CONTROLLERS, Auth, JailRoot
from cellblock.cluster.facts.host import CgroupMode

# Field of Purge -> what slurmdbd.conf(5) calls it: PurgeJobAfter, ...
_PURGED = {
    "events": "Event",
    "jobs": "Job",
    "reservations": "Resv",
    "steps": "Step",
    "suspensions": "Suspend",
    "transactions": "TXN",
    "usage": "Usage",
}


class Described(Protocol):
    """A cluster, wherever it runs: its file, and the variant of its images."""

    @property
    def file(self) -> ClusterFile:
        """What the site says of it."""

    @property
    def variant(self) -> SlurmVariant:
        """The variant of its images."""


@dataclass(frozen=True)
class NodeSetFacts:
    """A node set as templates and containers see it; `gres` is as Slurm writes it: gpu:a100:4,..."""

    name: str
    nodes: tuple[str, ...]
    cpus: int
    declares_cpus: bool
    memory_mb: int
    features: tuple[str, ...]
    gres: str
    weight: int
    on_demand: OnDemandFacts | None = None
    place: str = ""
    """Where nodes that register themselves are, as `Topology=` of slurm.conf(5): TOPOLOGY:SWITCH."""

    @property
    def hosts(self) -> str:
        """The nodes as Slurm lists them."""
        return f"{self.name}-[1-{len(self.nodes)}]"


@dataclass(frozen=True)
class PartitionFacts:
    """A partition as the template sees it; `sets` is empty when it has all nodes."""

    name: str
    sets: tuple[str, ...]
    default: bool
    max_time: str
    state: str
    options: str


@dataclass(frozen=True)
class AccountingFacts:
    """Slurm's accounting as templates see it; the other end of `host` is slurmdbd."""

    enforce: str
    tres: str
    account: str | None
    purge: Mapping[str, str]
    """Name in slurmdbd.conf -> period."""
    archive: bool
    host: str = "accounting"
    """Where slurmdbd is reached."""
    own_host: str = "accounting"
    """What slurmdbd's host calls itself."""
    database_host: str = "database"
    database_port: int = 3306
    database: str = "slurm_acct_db"
    user: str = "slurm"
    external: bool = False
    """Whether the database is one of the site's."""
    ca: str = ""
    """Whom to trust that it is: SHA-256 of database-ca.pem. Another one restarts slurmdbd."""


@dataclass(frozen=True)
class RestFacts:
    """Slurm's REST API as templates and containers see it: the port on 127.0.0.1 of each host.

    `jwt_key` is the key of tokens, in the containers of slurmctld and slurmdbd below /run/NAME.
    """

    ports: Mapping[str, int]
    jwt_key: str = JWT_KEY


@dataclass(frozen=True)
class ClusterFacts:
    """What templates see as `cluster`."""

    name: str
    node_sets: tuple[NodeSetFacts, ...]
    partitions: tuple[PartitionFacts, ...]
    memory_per_cpu_mb: int
    gres_types: tuple[str, ...] = ()
    gres: tuple[tuple[str, str, int], ...] = ()
    """Nodes, kind (gpu, or gpu:a100) and number each has of it."""
    overstated: bool = False
    """Whether nodes declare more than their machine has."""
    accounting: AccountingFacts | None = None
    rest: RestFacts | None = None
    health: HealthFacts | None = None
    jail_root: JailRoot = "nobody"
    jail_level: str = "capabilities"
    controllers: tuple[str, ...] = CONTROLLERS[:1]
    """Hosts of slurmctld, the one that is to act first."""
    auth: Auth = "munge"
    # More than a machine runs; costs slurmctld a few bytes each.
    max_nodes: int = 256
    detects_gpus: bool = False
    """Whether nodes find GPUs by themselves; else they are only declared."""
    login: str = "login"
    """Hosts that srun runs on."""
    shm: str = "50%"
    """The size of a job's /dev/shm, as mount(8) takes it."""
    tmp: str = "10%"
    """The size of a job's /tmp."""
    leaves: tuple[tuple[str, str], ...] = ()
    """Switches, and the nodes below each that slurm.conf names; without switches there is no topology."""
    topology_name: str = "default"
    block_size: int | None = None
    """Nodes of a block at least, where the leaves are blocks and no switches."""

    @property
    def on_demand(self) -> tuple[NodeSetFacts, ...]:
        """The node sets whose nodes come and go."""
        return tuple(one for one in self.node_sets if one.on_demand)

    @property
    def root_switch(self) -> str:
        """The switch above all of `leaves`, whose name is none of theirs."""
        name = "top"
        while any(name == leaf for leaf, _ in self.leaves):
            name += "_"
        return name

    @property
    def staying(self) -> str:
        """The nodes of those sets that stay, as Slurm lists them."""
        sets = ((one.name, one.on_demand.least) for one in self.node_sets if one.on_demand)
        return ",".join(f"{name}-[1-{least}]" for name, least in sets if least)


def cgroup_for(spec: Described, mode: CgroupMode) -> CgroupMode:
    """How the cluster's Slurm can use what the host has."""
    features = SlurmFeatures(spec.variant.release, spec.variant.plugin_dir)
    return mode if features.cgroup_v2 else "disabled"


def facts(
    spec: Described, cpus: int, memory_mb: int, running: Mapping[str, int] | None = None
) -> ClusterFacts:
    """How the machine's processors and memory are told to Slurm.

    Every worker sees all processors (they are only shared); memory is divided among those that declare none,
    with a tenth left for the daemons: two workers that promise the same memory would break the promise.
    `running` maps node sets to the MiB that their nodes have: they keep it, or would have to start anew.
    """
    file = spec.file
    declared = {one.name: mebibytes(one.resources.memory) for one in file.node_sets if one.resources.memory}
    kept = {name: size for name, size in (running or {}).items() if name not in declared}
    sharing = sum(one.count for one in file.node_sets if one.name not in declared)
    taken = sum(declared[one.name] * one.count for one in file.node_sets if one.name in declared)
    share = max((memory_mb * 9 // 10 - taken) // max(sharing, 1), 64)
    sets = tuple(
        NodeSetFacts(
            one.name,
            one.nodes,
            one.resources.cpu or cpus,
            one.resources.cpu is not None,
            declared.get(one.name, kept.get(one.name, share)),
            (one.name, *one.features),
            ",".join(f"{kind}:{count}" for kind, count in one.gres.items()),
            one.weight,
            on_demand_facts(one),
        )
        for one in file.node_sets
    )
    everything = {one.name for one in file.node_sets}
    overstated = any(one.cpus > cpus or one.memory_mb > memory_mb for one in sets)
    return ClusterFacts(
        file.name,
        sets,
        tuple(
            PartitionFacts(
                one.name,
                () if set(one.node_sets) in (set(), everything) else one.node_sets,
                one.default,
                slurm_time(one.max_time),
                one.state.upper(),
                "".join(f" {key}={value}" for key, value in _options(one).items()),
            )
            for one in file.partitions
        ),
        min(max(one.memory_mb // one.cpus, 1) for one in sets),
        _gres_kinds(file),
        tuple(
            (one.hosts, kind, count)
            for one, given in zip(sets, file.node_sets, strict=True)
            for kind, count in given.gres.items()
        ),
        overstated,
        accounting_facts(file),
        rest_facts(file),
        health_facts(file.health, overstated, gpus="gpu" in _gres_kinds(file)),
        file.jail.root,
        file.jail.level,
        file.controllers,
        file.auth,
    )


def accounting_facts(file: ClusterFile) -> AccountingFacts | None:
    """How Slurm's accounting is set for `file`; None when it has none."""
    if file.accounting is None:
        return None
    return AccountingFacts(
        ",".join(file.accounting.enforce) or "none",
        ",".join(f"gres/{kind}" for kind in _gres_kinds(file)),
        file.accounting.account,
        {
            name: period
            for field, name in _PURGED.items()
            if (period := getattr(file.accounting.purge, field)) is not None
        },
        file.accounting.purge.archive,
        **_external(file.accounting.external),
    )


def _external(database: ExternalDatabase | None) -> dict[str, Any]:
    if database is None:
        return {}
    ca = read_authorities(database.tls) if database.tls else ""
    return {
        "database_host": database.host,
        "database_port": database.port,
        "database": database.name,
        "user": database.user,
        "external": True,
        "ca": hashlib.sha256(ca.encode()).hexdigest() if ca else "",
    }


def rest_facts(file: ClusterFile) -> RestFacts | None:
    """Where slurmrestd of `file` is reached; None when it has none."""
    if file.rest is None:
        return None
    hosts = ("rest", *(f"rest-{number}" for number in range(2, file.rest.replicas + 1)))
    return RestFacts({host: file.rest.port + number for number, host in enumerate(hosts)})


def _gres_kinds(file: ClusterFile) -> tuple[str, ...]:
    """The kinds of generic resources, without types, in the order in which they are first named."""
    return tuple({kind.partition(":")[0]: None for one in file.node_sets for kind in one.gres})


def _options(partition: Partition) -> dict[str, str]:
    own = {} if partition.priority == 1 else {"PriorityTier": str(partition.priority)}
    return {**own, **partition.options}
