# SPDX-License-Identifier: Apache-2.0
"""Makes the pod that submits jobs to measure idle nodes (docs/health.md).

Slurm lets only root submit them, and slurmctld's container is not root on Kubernetes. In a local cluster it
is, and needs no such pod.
"""

from __future__ import annotations

from collections.abc import Iterator

from cellblock.cluster.engine.capabilities import capabilities
from cellblock.kubernetes.configuration import CONFIGURATION
from cellblock.kubernetes.control import JAIL, SECRETS, WRITES, environment, jail_volume
from cellblock.kubernetes.description import Description
from cellblock.kubernetes.metadata import Object
from cellblock.kubernetes.objects import account, deployment
from cellblock.kubernetes.pods import (
    Container,
    Mount,
    Pod,
    Resources,
    config_volume,
    secret_volume,
    writables,
)
from cellblock.kubernetes.secrets import key_files

COMPONENT = "health"
"""The part of the cluster that these jobs come from."""


def measures(cluster: Description) -> bool:
    """Whether jobs measure the nodes of `cluster`."""
    return bool(cluster.file.health and cluster.file.health.active)


def pod(cluster: Description) -> Iterator[Object]:
    """A Deployment of one pod. It keeps nothing: after a new start all nodes are due.

    With metrics it writes what was found to the volume, beside the jail, where the exporter finds it.
    """
    writes, volumes = writables({**WRITES, "/etc/slurm": "16Mi"})
    told = cluster.file.metrics is not None
    made = Pod(
        COMPONENT,
        (
            Container(
                "active-checks",
                cluster.image_of("controller"),
                Resources("10m", "64Mi", "512Mi"),
                {
                    **environment(cluster),
                    **({"CELLBLOCK_COUNTERS": "yes", "CELLBLOCK_JAIL_READY": "any"} if told else {}),
                },
                (
                    # follow-configuration copies it: active-checks wants files that root alone may write.
                    Mount("configuration", "/etc/cellblock/slurm"),
                    Mount("secrets", SECRETS),
                    *((Mount("jail", JAIL, read_only=False),) if told else ()),
                    *writes,
                ),
                command=("tini", "--", "cellblock-init", COMPONENT),
                capabilities=capabilities("controller"),
            ),
        ),
        (
            config_volume("configuration", CONFIGURATION),
            secret_volume("secrets", key_files(cluster)),
            *((jail_volume(cluster),) if told else ()),
            *volumes,
        ),
        finds_nodes=True,
    )
    yield account(cluster, COMPONENT)
    yield deployment(cluster, made, 1)
