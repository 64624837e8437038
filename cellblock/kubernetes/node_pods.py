# SPDX-License-Identifier: Apache-2.0
"""Makes the container beside slurmctld that creates pods when Slurm wants nodes on demand.

Its program is in images/node-pods. It is the only container with a token for Kubernetes' API. It shares one
folder with slurmctld's container and nothing else, so that neither has the other's rights.
"""

from __future__ import annotations

from cellblock.cluster.definition.node_set import NodeSet
from cellblock.kubernetes.description import NODES, Description
from cellblock.kubernetes.metadata import Object
from cellblock.kubernetes.pods import Container, Mount, Resources, config_volume

COMPONENT = "node-pods"
"""What it is called, and its image, and the ConfigMap of the pods' templates."""
_REQUESTS = "/run/node-pods"
_TEMPLATES = "/etc/cellblock/node-pods"
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
# The kubelet has a new one made in time.
_TOKEN_S = 3600


def sets(cluster: Description) -> tuple[NodeSet, ...]:
    """The node sets on demand."""
    return tuple(one for one in cluster.file.node_sets if one.on_demand)


def requests_mount() -> Mount:
    """The shared folder."""
    return Mount("requests", _REQUESTS, read_only=False)


def sidecar(cluster: Description, user: int) -> Container:
    """What makes the pods. `user` is slurmctld's, for they write the same files."""
    return Container(
        COMPONENT,
        cluster.image(COMPONENT),
        Resources("10m", "64Mi", "1Gi"),
        {"CELLBLOCK_CLUSTER": cluster.file.name, "CELLBLOCK_NODES_SERVICE": NODES},
        (requests_mount(), Mount("templates", _TEMPLATES), Mount("token", _TOKEN)),
        user=user,
    )


def volumes() -> tuple[Object, ...]:
    """The volumes of the sidecar, and of the folder that it shares."""
    sources: list[Object] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN_S}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {
                        "path": "namespace",
                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                    }
                ]
            }
        },
    ]
    return (
        {"name": "requests", "emptyDir": {"medium": "Memory", "sizeLimit": "128Mi"}},
        config_volume("templates", COMPONENT),
        {"name": "token", "projected": {"defaultMode": 0o444, "sources": sources}},
    )
