# SPDX-License-Identifier: Apache-2.0
"""The local cluster: Slurm's configuration, secrets, and containers over the Docker API."""

from cellblock.cluster.definition.model import (
    ClusterSpec,
    ClusterStatus,
    ContainerStatus,
    NodeStatus,
    Proof,
    SlurmVariant,
)
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.local import start, status, stop
from cellblock.cluster.proof import prove
from cellblock.cluster.proof_user import PROOF_USER
from cellblock.cluster.shell import require_running, shell_argv

__all__ = [
    "PROOF_USER",
    "ClusterSpec",
    "ClusterStatus",
    "ContainerStatus",
    "NodeStatus",
    "Proof",
    "SlurmVariant",
    "name_option",
    "prove",
    "require_running",
    "shell_argv",
    "start",
    "status",
    "stop",
]
