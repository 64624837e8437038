# SPDX-License-Identifier: Apache-2.0
"""The state that a cluster should have, and the state that it was found in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellblock.errors import UsageError

EngineName = Literal["podman", "docker"]
Role = Literal["controller", "worker", "login"]
JailRoot = Literal["nobody", "operator"]
"""What root in the jail is to Slurm: nobody, who submits no jobs, or operator, who can take over Slurm."""

# What a node's state may be when it takes jobs or runs them, in sinfo's short form (sinfo(1), %t). A flag
# may follow, as in "idle*" (not answering), which does not serve.
SERVING = frozenset({"idle", "mix", "alloc", "comp", "plnd", "resv"})

# slurmctld accepts these, and they are part of container and network names.
_CLUSTER_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


def check_name(name: str) -> None:
    """Raise UsageError unless `name` can name a cluster."""
    if not _CLUSTER_NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot name a cluster: lower-case letters, digits and '-', at most 40",
            hint="choose another name",
        )


DEFAULT_NAME = "cellblock"
"""The cluster that commands mean when they are given no --name."""


def name_option(name: str) -> str:
    """What to append to a command of `build.py` so that it means cluster `name`: "" for the default one."""
    return "" if name == DEFAULT_NAME else f" --name {name}"


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
    """A cluster to run on this machine.

    `images` maps the roles controller, worker and login to image references; `volume` is an
    assembled jail volume (root/ below it); `ssh_port` is opened on the loopback address; `jail_root`
    says what root in the jail is to Slurm (docs/decisions/jail-root-and-slurm.md).
    Raises UsageError when the name, the number of workers or the port cannot be used.
    """

    name: str
    variant: SlurmVariant
    images: Mapping[str, str]
    volume: Path
    workers: int = 2
    ssh_port: int = 2222
    engine: EngineName = "podman"
    jail_root: JailRoot = "nobody"

    def __post_init__(self) -> None:
        """Refuse what no cluster can be."""
        check_name(self.name)
        # 200: the nodes of a /24 bridge, with room for the rest.
        if not 1 <= self.workers <= 200:
            raise UsageError(f"{self.workers} workers cannot run on one machine", hint="use 1 to 200")
        if not 1 <= self.ssh_port <= 65535:
            raise UsageError(f"{self.ssh_port} is not a port", hint="use 1 to 65535")


@dataclass(frozen=True)
class ContainerStatus:
    """A container of the cluster. `state` is the engine's word: running, exited, ..."""

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
    changed: bool = False

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
