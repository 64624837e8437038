# SPDX-License-Identifier: Apache-2.0
"""Defines a cluster to run on this machine, and the status in which its containers and nodes were found.

A ClusterSpec is a cluster file (cluster_file.py) with what the file leaves open: variant, images, volume.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cellblock.cluster.definition.cluster_file import MOST_NODES, ClusterFile
from cellblock.errors import UsageError

EngineName = Literal["podman", "docker"]
Role = Literal["controller", "worker", "login", "accounting", "database", "rest", "metrics"]

# What a node's state may be when it takes jobs or runs them, in sinfo's short form (sinfo(1), %t). A flag
# may follow, as in "idle*" (not answering), which does not serve.
SERVING = frozenset({"idle", "mix", "alloc", "comp", "plnd", "resv"})


@dataclass(frozen=True)
class SlurmVariant:
    """What the cluster must know of its images' variant.

    `release` is Slurm's major.minor; `plugin_dir` the directory it loads plugins from.
    """

    name: str
    release: str
    plugin_dir: str


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster to run on this machine: what its file says, with what the file leaves to the place.

    `images` maps names of images to references; `volume` is an assembled jail volume (root/ below it). Raises
    UsageError when one machine cannot run as many nodes.
    """

    file: ClusterFile
    variant: SlurmVariant
    images: Mapping[str, str]
    volume: Path
    engine: EngineName = "podman"
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Options of the `up` that asked for it -> their values, without --name and --wait."""

    def __post_init__(self) -> None:
        """Refuse what no machine can run."""
        if len(self.file.nodes) > MOST_NODES:
            raise UsageError(
                f"{len(self.file.nodes)} workers cannot run on one machine", hint=f"use 1 to {MOST_NODES}"
            )
        on_demand = [one.name for one in self.file.node_sets if one.on_demand]
        if on_demand:
            raise UsageError(
                f"node set {on_demand[0]}: `on_demand` has pods made, and there are none on one machine",
                hint="remove `on_demand` from the cluster file: an idle node costs next to nothing here",
            )

    @property
    def name(self) -> str:
        """The cluster's."""
        return self.file.name


@dataclass(frozen=True)
class ContainerStatus:
    """A container of the cluster. `state` is the engine's word: running, exited, ...; gone without one."""

    name: str
    role: Role
    state: str
    image: str


@dataclass(frozen=True)
class NodeStatus:
    """A Slurm node as sinfo shows it."""

    name: str
    state: str


@dataclass(frozen=True)
class ClusterStatus:
    """What runs. `changed` is whether the call that returned this started anything."""

    name: str
    variant: str
    release: str
    engine: EngineName
    ssh_port: int
    ssh_key: Path
    volume: Path
    containers: tuple[ContainerStatus, ...]
    nodes: tuple[NodeStatus, ...]
    rest_urls: tuple[str, ...] = ()
    """Where slurmrestd is reached."""
    changed: bool = False
    host_key: str = ""
    """Fingerprint of the login node's host key, as ssh shows it at a first connection; empty without one."""

    @property
    def ssh_command(self) -> str:
        """What opens root's session on the login node, in the jail."""
        return f"ssh -p {self.ssh_port} -i {self.ssh_key} root@127.0.0.1"

    @property
    def runs(self) -> bool:
        """Whether every container runs, whatever Slurm says of its nodes."""
        return bool(self.containers) and all(container.state == "running" for container in self.containers)

    @property
    def ready(self) -> bool:
        """Whether every container runs and every worker takes jobs."""
        workers = sum(container.role == "worker" for container in self.containers)
        return bool(workers) and self.runs and sum(node.state in SERVING for node in self.nodes) >= workers


@dataclass(frozen=True)
class Proof:
    """What jobs of the cluster saw.

    `workers` maps each worker's name to the PRETTY_NAME of the os-release its task read; `written`
    is the line that a job on `writer` wrote to `path` in the jail, `read` what a job on `reader`
    found there and `login` what the login node's jail shows. `seconds` is the time of all of it.
    """

    workers: Mapping[str, str]
    path: str
    writer: str
    reader: str
    written: str
    read: str
    login: str
    seconds: float
