# SPDX-License-Identifier: Apache-2.0
"""Runs the program that makes pods of nodes, with these settings from the environment.

CELLBLOCK_CLUSTER        the cluster's name, which the pods have as label app.kubernetes.io/instance
CELLBLOCK_NAMESPACE      where the pods are (default: that of the token)
CELLBLOCK_NODES_SERVICE  the headless Service of the nodes' names (nodes)
CELLBLOCK_NODE_PODS      the folder that slurmctld's container shares (/run/node-pods)
CELLBLOCK_TEMPLATES      the pods' templates, SET.json (/etc/cellblock/node-pods)
CELLBLOCK_API            the API's URL (default: as Kubernetes tells its pods)
CELLBLOCK_TOKEN          folder with token, ca.crt and namespace (default: as Kubernetes mounts them)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from cellblock_node_pods.api import Access, Api
from cellblock_node_pods.reconcile_loop import ReconcileLoop
from cellblock_node_pods.template import ON_DEMAND

_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def _setting(name: str, default: str = "") -> str:
    value = os.environ.get(f"CELLBLOCK_{name}") or default
    if not value:
        sys.exit(
            f"cellblock-node-pods: CELLBLOCK_{name} is not set; this program's containers are made by "
            "`build.py render kubernetes`"
        )
    return value


def _url() -> str:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return ""
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def main() -> None:
    """Go on until the container ends."""
    token = Path(_setting("TOKEN", _TOKEN))
    namespace = token / "namespace"
    own = namespace.read_text(encoding="ascii").strip() if namespace.is_file() else ""
    access = Access(_setting("API", _url()), _setting("NAMESPACE", own), token / "token", token / "ca.crt")
    ReconcileLoop(
        Api(access),
        Path(_setting("NODE_PODS", "/run/node-pods")),
        Path(_setting("TEMPLATES", "/etc/cellblock/node-pods")),
        f"app.kubernetes.io/instance={_setting('CLUSTER')},{ON_DEMAND}=yes",
        _setting("NODES_SERVICE", "nodes"),
    ).forever()


if __name__ == "__main__":
    main()
