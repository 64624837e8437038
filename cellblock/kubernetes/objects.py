# SPDX-License-Identifier: Apache-2.0
"""Makes single objects of Kubernetes: StatefulSets, Deployments, Services, claims, accounts, budgets.

pods.py has the pods in them. control.py and nodes.py decide which objects a cluster has.
"""

from __future__ import annotations

from collections.abc import Mapping

from cellblock.cluster.definition.kubernetes_part import Volume
from cellblock.kubernetes.description import Description
from cellblock.kubernetes.metadata import Object, labels, metadata
from cellblock.kubernetes.pods import Pod
from cellblock.kubernetes.quantities import size


def stateful_set(
    cluster: Description,
    pod: Pod,
    name: str,
    replicas: int,
    service: str,
    *,
    start: int = 0,
) -> Object:
    """A StatefulSet; a rolling update of it stops at the first pod that does not become ready.

    One whose pods wait for each other (OrderedReady) goes on waiting for such a pod when its image was
    corrected, until somebody deletes it.
    """
    chosen = labels(cluster, pod.component, pod.labels)
    spec: Object = {
        "serviceName": service,
        "replicas": replicas,
        "selector": {"matchLabels": chosen},
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "template": pod.template(cluster),
    }
    if start:
        spec["ordinals"] = {"start": start}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(cluster, name, pod.component, pod.labels),
        "spec": spec,
    }


def deployment(cluster: Description, pod: Pod, replicas: int) -> Object:
    """A Deployment of pods that keep nothing."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(cluster, pod.component, pod.component),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels(cluster, pod.component)},
            "template": pod.template(cluster),
        },
    }


def service(
    cluster: Description,
    name: str,
    component: str,
    ports: Mapping[str, int],
    *,
    kind: str = "",
    node_port: int | None = None,
) -> Object:
    """A Service. Without `kind` it is headless: names of its pods, ready or not, for who waits for them."""
    spec: Object = {"selector": labels(cluster, component)}
    if kind:
        spec["type"] = kind
        if kind == "LoadBalancer":
            # Who logs in is seen by the address he comes from.
            spec["externalTrafficPolicy"] = "Local"
    else:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    spec["ports"] = [
        {"name": port_name, "port": port, "targetPort": port, "protocol": "TCP"}
        for port_name, port in ports.items()
    ]
    if node_port:
        spec["ports"][0]["nodePort"] = node_port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(cluster, name, component),
        "spec": spec,
    }


def pod_service(cluster: Description, pod: str, component: str, ports: Mapping[str, int]) -> Object:
    """A Service of the name of a StatefulSet's pod, with an address that the next pod of that name has, too.

    Slurm's steps and commands look an address up when they start, and go on with that one.
    """
    made = service(cluster, pod, component, ports, kind="ClusterIP")
    made["spec"]["selector"]["statefulset.kubernetes.io/pod-name"] = pod
    made["spec"]["publishNotReadyAddresses"] = True
    return made


def account(cluster: Description, name: str) -> Object:
    """A ServiceAccount without a token: nothing here asks the API."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(cluster, name, name),
        "automountServiceAccountToken": False,
    }


def disruption_budget(
    cluster: Description,
    name: str,
    component: str,
    unavailable: int | str,
    more: Mapping[str, str] | None = None,
) -> Object:
    """How many pods an eviction may take away at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(cluster, name, component, more),
        "spec": {
            "maxUnavailable": unavailable,
            "selector": {"matchLabels": labels(cluster, component, more)},
        },
    }


def claim(
    cluster: Description, name: str, component: str, volume: Volume, mode: str = "ReadWriteOnce"
) -> Object:
    """A claim of its own, not one that a StatefulSet makes: a larger size can be asked for later."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(cluster, name, component),
        "spec": {
            "accessModes": [mode],
            **({"storageClassName": volume.storage_class} if volume.storage_class else {}),
            "resources": {"requests": {"storage": size(volume.size)}},
        },
    }
