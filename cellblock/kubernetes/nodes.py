# SPDX-License-Identifier: Apache-2.0
"""Makes the pods with a jail: a StatefulSet for each node set, and the login nodes.

on_demand.py makes the templates of nodes that come and go.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from cellblock.cluster.configuration.template_facts import ClusterFacts
from cellblock.cluster.definition.amounts import mebibytes, seconds
from cellblock.cluster.definition.node_set import NodeSet
from cellblock.cluster.engine.capabilities import capabilities
from cellblock.cluster.engine.container_specs import node_line
from cellblock.kubernetes import description as names
from cellblock.kubernetes.configuration import CONFIGURATION
from cellblock.kubernetes.control import JAIL, SECRETS, environment, jail_volume
from cellblock.kubernetes.description import NODES, Description, set_facts
from cellblock.kubernetes.metadata import COMPONENT, NODE_SET, Object, labels
from cellblock.kubernetes.objects import account, disruption_budget, service, stateful_set
from cellblock.kubernetes.pods import (
    Container,
    Mount,
    Pod,
    Resources,
    config_volume,
    listening,
    secret_volume,
    writables,
)
from cellblock.kubernetes.secrets import HOST_KEYS, key_files, secret_names

# What a node's daemons take of the pod's memory besides what Slurm gives to jobs.
_DAEMONS_MIB = 512
# What a worker can write outside the jail, in memory. cellblock-init gives the folders their modes.
_WRITES = {
    "/run": "64Mi",
    "/tmp": "64Mi",
    "/var/tmp": "1Mi",
    "/var/lib/extrausers": "100Mi",
    "/var/log": "256Mi",
}
# images/worker: 256 MiB, and a batch script of 4 MiB at most for each processor's job.
_SPOOL_MIB, _SCRIPT_MIB = 256, 4
# Processes and threads of one user in a pod.
_USER_PROCESSES = "8192"
# What the pod's end takes besides the time that jobs or sessions have: node-leave ends those that are left.
_LEAVING_S = 75
# The time of sessions, in which login-leave tells them.
_SESSIONS_S = 60
_PROGRAMS = "/usr/lib/cellblock"
# The kernel's default, which containerd 2 changes: users take no port of a daemon's while it starts again.
_PORTS_OF_ROOT = {"net.ipv4.ip_unprivileged_port_start": "1024"}
_DRIVER_PARTS = "NVIDIA_DRIVER_CAPABILITIES"
_HOST = "kubernetes.io/hostname"


def nodes_service(cluster: Description) -> Iterator[Object]:
    """The names of all nodes and login nodes, and the account of the nodes' pods."""
    yield account(cluster, "worker")
    named = service(cluster, NODES, "worker", {"slurmd": names.NODE_PORT})
    # All of the cluster's pods: those that name this Service get a name from it. With a label of their own,
    # pods that run would be without a name until an update has drained them.
    del named["spec"]["selector"][COMPONENT]
    yield named


def _inside(cluster: Description) -> dict[str, str]:
    return {
        **environment(cluster),
        "CELLBLOCK_JAIL_READY": "any",
        "CELLBLOCK_JAIL_ROOT": cluster.file.jail.root,
        "CELLBLOCK_USER_PROCESSES": _USER_PROCESSES,
    }


def node_pod(cluster: Description, facts: ClusterFacts, one: NodeSet, config_map: str) -> Pod:
    """The pod of a node of set `one`."""
    own = set_facts(facts, one)
    memory = mebibytes(one.resources.memory or "1Gi") + _DAEMONS_MIB
    requests = one.requests
    spool = f"{_SPOOL_MIB + _SCRIPT_MIB * own.cpus}Mi"
    writes, volumes = writables({**_WRITES, "/run/bcast": f"{max(memory // 10, 16)}Mi", "/var/spool": spool})
    gpus = {kind: count for kind, count in one.gres.items() if kind.partition(":")[0] == "gpu"}
    devices = {one.gpu_resource: str(sum(gpus.values()))} if gpus else {}
    devices |= {one.fuse_resource: "1"} if one.fuse_resource else {}
    resources = Resources(
        requests.cpu if requests else str(own.cpus),
        requests.memory if requests else f"{memory}Mi",
        f"{memory}Mi",
        devices,
    )
    container = Container(
        "slurmd",
        cluster.image(one.image or "worker"),
        resources,
        {
            **_inside(cluster),
            "CELLBLOCK_CGROUP": cluster.place.cgroup,
            **({"CELLBLOCK_COUNTERS": "yes"} if cluster.file.metrics else {}),
            # Which parts of the driver NVIDIA's runtime shows; without, those of computing alone. jail-driver
            # shows jobs what it finds.
            **({_DRIVER_PARTS: "all"} if gpus and one.gpu_resource.startswith("nvidia.com/") else {}),
            # slurm.conf names those on demand.
            **(
                {"CELLBLOCK_ON_DEMAND": "yes"}
                if one.on_demand
                else {"CELLBLOCK_NODE_CONF": node_line(replace(own, declares_cpus=True))}
            ),
        },
        (
            Mount("jail", JAIL, read_only=False),
            Mount("secrets", SECRETS),
            *(
                Mount("plan", f"/etc/cellblock/{file}", sub_path=file)
                for file in ("jail.fstab", *(("health.conf",) if cluster.file.health else ()))
            ),
            *writes,
        ),
        {"slurmd": names.NODE_PORT, "ssh": names.SSH_PORT},
        capabilities=capabilities("worker"),
        escalates=True,
        unconfined=True,
        # register-node writes the file, once slurmctld knows this slurmd.
        ready=listening(names.NODE_PORT, file="/run/cellblock/registered"),
        before_end=(f"{_PROGRAMS}/node-leave", str(seconds(one.grace))),
    )
    return Pod(
        "worker",
        (container,),
        (
            jail_volume(cluster),
            secret_volume("secrets", key_files(cluster)),
            config_volume("plan", config_map),
            *volumes,
        ),
        {NODE_SET: one.name},
        sysctls=_PORTS_OF_ROOT,
        node_selector=one.node_selector,
        tolerations=one.tolerations,
        affinity=_apart(cluster, one),
        spread=_spread(cluster, one),
        finds_nodes=True,
        grace_s=seconds(one.grace) + _LEAVING_S,
        runtime_class=one.runtime_class,
    )


def _apart(cluster: Description, one: NodeSet) -> Object | None:
    """Nodes of a set on machines of their own, where it requires that."""
    if one.spread != "required":
        return None
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_by_host(cluster, one)]}}


def _spread(cluster: Description, one: NodeSet) -> Object | None:
    """As many nodes of a set on a machine as on another, where there is room.

    An affinity that is preferred would do it, too; for each pod the scheduler would look at all others.
    """
    if one.spread != "preferred":
        return None
    return {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **_by_host(cluster, one)}


def _by_host(cluster: Description, one: NodeSet) -> Object:
    chosen = labels(cluster, "worker", {NODE_SET: one.name})
    return {"topologyKey": _HOST, "labelSelector": {"matchLabels": chosen}}


def node_set(cluster: Description, facts: ClusterFacts, one: NodeSet, config_map: str) -> Iterator[Object]:
    """The nodes of set `one`: NAME-1, NAME-2 and so on, as in the local cluster."""
    pod = node_pod(cluster, facts, one, config_map)
    yield stateful_set(cluster, pod, one.name, one.count, NODES, start=1)
    # Evictions wait for the jobs; a tenth at a time drains large clusters within a day.
    most: int | str = 1 if one.count < 20 else "10%"
    yield disruption_budget(cluster, one.name, "worker", most, {NODE_SET: one.name})


def login(cluster: Description, config_map: str) -> Iterator[Object]:
    """sshd, with sessions in the jail."""
    place = cluster.place.login
    secrets = secret_volume("secrets", {**key_files(cluster), secret_names(cluster).host_keys: HOST_KEYS})
    secrets["projected"]["sources"].append(
        {"configMap": {"name": config_map, "items": [{"key": "authorized_keys", "path": "authorized_keys"}]}}
    )
    container = Container(
        "sshd",
        cluster.image_of("login"),
        Resources("250m", "512Mi", "8Gi"),
        _inside(cluster),
        (
            Mount("jail", JAIL, read_only=False),
            # follow-configuration takes it to /etc/slurm when Slurm's commands read it.
            Mount("configuration", "/etc/cellblock/slurm"),
            Mount("secrets", SECRETS),
            Mount("plan", "/etc/cellblock/jail.fstab", sub_path="jail.fstab"),
        ),
        {"ssh": names.SSH_PORT},
        capabilities=capabilities("login"),
        escalates=True,
        unconfined=True,
        # /etc, /run and /var are the image's own here, and go with the pod.
        read_only=False,
        ready=listening(names.SSH_PORT),
        before_end=(f"{_PROGRAMS}/login-leave", str(_SESSIONS_S)),
    )
    pod = Pod(
        "login",
        (container,),
        (
            jail_volume(cluster),
            config_volume("configuration", CONFIGURATION),
            config_volume("plan", config_map),
            secrets,
        ),
        sysctls=_PORTS_OF_ROOT,
        finds_nodes=True,
        grace_s=_SESSIONS_S + _LEAVING_S,
    )
    yield account(cluster, "login")
    reached = service(
        cluster, "login", "login", {"ssh": names.SSH_PORT}, kind=place.type, node_port=place.node_port
    )
    reached["metadata"]["annotations"] |= place.annotations
    if place.source_ranges:
        reached["spec"]["loadBalancerSourceRanges"] = list(place.source_ranges)
    yield reached
    # slurmctld looks up the name that srun and salloc gave it when it has something to tell them.
    yield stateful_set(cluster, pod, "login", place.replicas, NODES)
    yield disruption_budget(cluster, "login", "login", max(1, math.ceil(place.replicas / 3)))
