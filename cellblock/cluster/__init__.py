"""The local cluster: Slurm's configuration, secrets, and containers over the Docker API."""

from cellblock.cluster.local import shell_argv, start, status, stop
from cellblock.cluster.model import (
    ClusterSpec,
    ClusterStatus,
    ContainerStatus,
    NodeStatus,
    Proof,
    SlurmVariant,
)
from cellblock.cluster.proof import prove

__all__ = [
    "ClusterSpec",
    "ClusterStatus",
    "ContainerStatus",
    "NodeStatus",
    "Proof",
    "SlurmVariant",
    "prove",
    "shell_argv",
    "start",
    "status",
    "stop",
]
