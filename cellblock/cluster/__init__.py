# SPDX-License-Identifier: Apache-2.0
"""The local cluster: starts, changes, upgrades and ends Slurm in containers of podman or Docker.

    definition/      the cluster file, read and checked
    facts/           records of this machine and its clusters, kept on disk
    configuration/   Slurm's configuration files and secrets
    engine/          the containers, and podman or Docker, which runs them
    changing/        changes of a running cluster; above it upgrading/ and rotating/
    *.py             the commands

The names below are what modules outside of this folder may import directly.
"""

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
