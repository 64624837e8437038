# SPDX-License-Identifier: Apache-2.0
"""Defines a node set of the cluster file: how many nodes of one kind, with what resources."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from cellblock.cluster.definition.amounts import seconds
from cellblock.cluster.definition.kubernetes_part import Requests
from cellblock.cluster.definition.kubernetes_value_types import (
    Amount,
    Duration,
    LabelKey,
    LabelValue,
    ObjectName,
    Tolerated,
)
from cellblock.cluster.definition.strict_model import Strict as _Strict
from cellblock.cluster.definition.value_types import ImageName, Name, Size, Word
from cellblock.yaml_source import FaultAt

# ResumeTimeout in slurm.conf(5) has 16 bits; less what Slurm waits besides.
_LONGEST_START_S = 12 * 3600
_GRES = re.compile(r"[a-z][a-z0-9_]{0,31}(:[A-Za-z0-9][A-Za-z0-9_.-]{0,31})?")


class Resources(_Strict):
    """What each node of a set tells Slurm that it has. Without: what its machine has."""

    cpu: int | None = Field(default=None, ge=1, le=4096)
    """Processors."""
    memory: Size | None = None
    """Memory, as in 8Gi."""


class OnDemand(_Strict):
    """Nodes that are there while jobs need them: Slurm has a pod made for each, and removed."""

    idle_after: Duration = "10m"
    """How long a node is idle before it goes."""
    min: int = Field(default=0, ge=0, le=65000)
    """How many nodes, the first ones, stay when nothing needs them."""
    start_within: Duration = "15m"
    """How long a node may take to start, with a new machine and the pull of its image. Then it is given up,
    says why, and is tried again later."""

    @model_validator(mode="after")
    def _times_are_slurms(self) -> OnDemand:
        if seconds(self.start_within) > _LONGEST_START_S:
            raise ValueError(f"start_within: '{self.start_within}' is too long: at most 12h")
        return self


class NodeSet(_Strict):
    """Nodes of one kind. They are called NAME-1, NAME-2 and so on, and have NAME as a feature."""

    name: Name
    """The first part of the nodes' names."""
    image: ImageName | None = None
    """The image that the nodes run; without: `worker`. Another one is made `from: worker`."""
    count: int = Field(default=1, ge=1, le=65000)
    """How many; with `on_demand`: at most."""
    on_demand: OnDemand | None = None
    """On Kubernetes: the nodes are there while jobs need them; without: always."""
    features: tuple[Word, ...] = Field(default=(), strict=False)
    """Features of the nodes, for `srun --constraint`."""
    resources: Resources = Resources()
    """What each node has."""
    gres: dict[str, int] = Field(default_factory=dict)
    """Generic resources of each node, as in `gpu: 4` or `gpu:a100: 4`; declared, not looked for."""
    weight: int = Field(default=1, ge=1, le=65533)
    """Nodes of the lowest weight are given out first."""
    requests: Requests | None = None
    """On Kubernetes: what is set aside for each node's pod; without: its `resources`."""
    shm: Amount | None = None
    """On Kubernetes: the size of /dev/shm, which counts as memory; without: half of `resources.memory`."""
    grace: Duration = "1h"
    """On Kubernetes: how long jobs of a node may go on when its pod is to end. Then they are requeued."""
    spread: Literal["preferred", "required", "none"] = "preferred"
    """On Kubernetes: whether nodes of the set run on machines of their own."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """On Kubernetes: labels of the machines that nodes run on."""
    tolerations: tuple[Tolerated, ...] = Field(default=(), strict=False)
    """On Kubernetes: taints that nodes tolerate, KEY[=VALUE][:EFFECT]."""
    gpu_resource: LabelKey = "nvidia.com/gpu"
    """On Kubernetes: what the device plugin calls the GPUs that `gres` counts."""
    fuse_resource: LabelKey | None = None
    """On Kubernetes: what a device plugin calls /dev/fuse, by which jobs' containers mount their images
    (`smarter-devices/fuse`); without: what the machines' container runtime gives to all pods, which is
    nothing as a rule."""
    runtime_class: ObjectName | None = None
    """On Kubernetes: the RuntimeClass of the nodes, as `nvidia` where the runtime that shows a GPU's driver
    to containers is not the default one."""

    @model_validator(mode="after")
    def _gres_are_gres(self) -> NodeSet:
        for kind, count in self.gres.items():
            if not _GRES.fullmatch(kind):
                raise ValueError(f"gres: '{kind}' is no resource: a name such as gpu, or gpu:a100")
            if not 1 <= count <= 4096:
                raise ValueError(f"gres: {kind}: {count} is not between 1 and 4096")
        return self

    @model_validator(mode="after")
    def _keeps_what_there_is(self) -> NodeSet:
        if self.on_demand and self.on_demand.min > self.count:
            raise FaultAt(
                f"{self.on_demand.min} nodes are more than `count: {self.count}`", "on_demand", "min"
            )
        return self

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(f"{self.name}-{number}" for number in range(1, self.count + 1))
