# SPDX-License-Identifier: Apache-2.0
"""Defines pods, containers and volumes as typed values, and turns them into data of Kubernetes' API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cellblock.cluster.definition.kubernetes_value_types import EFFECTS
from cellblock.kubernetes.description import Description
from cellblock.kubernetes.metadata import Object, labels
from cellblock.kubernetes.quantities import cpu, size


@dataclass(frozen=True)
class Mount:
    """A volume in a container. `sub_path` is a file of a volume that is a folder."""

    volume: str
    path: str
    read_only: bool = True
    sub_path: str = ""

    def data(self) -> Object:
        """As an item of volumeMounts."""
        return {
            "name": self.volume,
            "mountPath": self.path,
            **({"readOnly": True} if self.read_only else {}),
            **({"subPath": self.sub_path} if self.sub_path else {}),
        }


@dataclass(frozen=True)
class Resources:
    """What a container asks for and may use, as quantities; `more` is what is asked for and used alike."""

    cpu: str
    memory: str
    memory_limit: str = ""
    more: Mapping[str, str] = field(default_factory=dict)

    def data(self) -> Object:
        """As `resources`."""
        return {
            "requests": {"cpu": cpu(self.cpu), "memory": size(self.memory), **self.more},
            "limits": {"memory": size(self.memory_limit or self.memory), **self.more},
        }


@dataclass(frozen=True)
class Container:
    """A container: an image's own program, its environment and volumes, and what it may do."""

    name: str
    image: str
    resources: Resources
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    ports: Mapping[str, int] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    user: int | None = None
    """The uid and gid; without: the image's, which is root."""
    escalates: bool = False
    """Whether programs may gain rights by execve(2): set-user-ID programs of the jail do."""
    unconfined: bool = False
    """Without seccomp and AppArmor: for those who make the jail's mounts."""
    read_only: bool = True
    ready: Object | None = None
    """The readiness probe."""
    alive: Object | None = None
    """The liveness probe."""
    told: tuple[str, ...] = ()
    """A command whose failure is an event of the pod's, and has no other effect."""
    before_end: tuple[str, ...] = ()
    """The command that runs before the container is told to end."""

    def data(self) -> Object:
        """As an item of `containers`."""
        context: Object = {
            "allowPrivilegeEscalation": self.escalates,
            "readOnlyRootFilesystem": self.read_only,
            "capabilities": {
                "drop": ["ALL"],
                **({"add": list(self.capabilities)} if self.capabilities else {}),
            },
            "seccompProfile": {"type": "Unconfined" if self.unconfined else "RuntimeDefault"},
        }
        if self.unconfined:
            context["appArmorProfile"] = {"type": "Unconfined"}
        if self.user is not None:
            context |= {"runAsNonRoot": True, "runAsUser": self.user, "runAsGroup": self.user}
        one: Object = {"name": self.name, "image": self.image}
        if self.command:
            one["command"] = list(self.command)
        if self.environment:
            one["env"] = [{"name": key, "value": value} for key, value in self.environment.items()]
        if self.ports:
            one["ports"] = [{"name": name, "containerPort": port} for name, port in self.ports.items()]
        if self.mounts:
            one["volumeMounts"] = [mount.data() for mount in self.mounts]
        one |= {"resources": self.resources.data(), "securityContext": context}
        if self.ready:
            one["readinessProbe"] = self.ready
        if self.alive:
            # Waiting for what a container needs, bounded by CELLBLOCK_WAIT_S, is no reason to end it.
            one["startupProbe"] = {**self.alive, "periodSeconds": 2, "failureThreshold": 450}
            one["livenessProbe"] = {**self.alive, "periodSeconds": 20, "failureThreshold": 6}
        if self.told:
            # kubelet makes events of what a probe says. For this one to end the container, years must pass.
            probe = {"exec": {"command": list(self.told)}, "timeoutSeconds": 10, "periodSeconds": 30}
            one["livenessProbe"] = {**probe, "failureThreshold": 2**31 - 1}
        if self.before_end:
            one["lifecycle"] = {"preStop": {"exec": {"command": list(self.before_end)}}}
        return one


@dataclass(frozen=True)
class Pod:
    """A pod of `component`."""

    component: str
    containers: tuple[Container, ...]
    volumes: tuple[Object, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    account: str = ""
    """The service account; without: that of the component's name."""
    group: int | None = None
    """The group that volumes and secrets are given to."""
    groups: tuple[int, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] | None = None
    """Without: that of the cluster file's `kubernetes`; likewise `tolerations`."""
    tolerations: tuple[str, ...] | None = None
    affinity: Object | None = None
    spread: Object | None = None
    """A constraint of topologySpreadConstraints."""
    priority: bool = False
    finds_nodes: bool = False
    """Whether it knows nodes by their bare names."""
    grace_s: int = 30
    runtime_class: str | None = None
    before: tuple[Container, ...] = ()
    """Containers that run before the others."""

    def template(self, cluster: Description) -> Object:
        """As `template` of what makes such pods."""
        place = cluster.place
        tolerations = place.tolerations if self.tolerations is None else self.tolerations
        selector = place.node_selector if self.node_selector is None else self.node_selector
        context: Object = {}
        if self.group is not None:
            # Large volumes are gone through once, not each time.
            context |= {"fsGroup": self.group, "fsGroupChangePolicy": "OnRootMismatch"}
        if self.groups:
            context["supplementalGroups"] = list(self.groups)
        if self.sysctls:
            context["sysctls"] = [{"name": key, "value": value} for key, value in self.sysctls.items()]
        spec: Object = {
            "serviceAccountName": self.account or self.component,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": self.grace_s,
        }
        if context:
            spec["securityContext"] = context
        if place.pull_secrets:
            spec["imagePullSecrets"] = [{"name": name} for name in place.pull_secrets]
        if self.runtime_class:
            spec["runtimeClassName"] = self.runtime_class
        if self.priority and place.priority_class:
            spec["priorityClassName"] = place.priority_class
        if selector:
            spec["nodeSelector"] = dict(selector)
        if tolerations:
            spec["tolerations"] = [toleration(one) for one in tolerations]
        if self.affinity:
            spec["affinity"] = self.affinity
        if self.spread:
            spec["topologySpreadConstraints"] = [self.spread]
        if self.finds_nodes:
            spec["dnsConfig"] = {"searches": [cluster.search_domain]}
        if self.before:
            spec["initContainers"] = [one.data() for one in self.before]
        spec["containers"] = [one.data() for one in self.containers]
        if self.volumes:
            spec["volumes"] = list(self.volumes)
        return {"metadata": {"labels": labels(cluster, self.component, self.labels)}, "spec": spec}


def toleration(text: str) -> Object:
    """A toleration, KEY[=VALUE][:EFFECT], as data."""
    rest, _, effect = text.rpartition(":") if text.rpartition(":")[2] in EFFECTS else (text, "", "")
    key, equals, value = rest.partition("=")
    return {
        "key": key,
        "operator": "Equal" if equals and value else "Exists",
        **({"value": value} if value else {}),
        **({"effect": effect} if effect else {}),
    }


def listening(port: int, file: str = "") -> Object:
    """A probe: whether something listens on a port, and a file is there; without asking anybody.

    A daemon would write a line for each connection that says nothing, and thousands of kubelets make many.
    """
    test = f"grep -qE ':{port:04X} 0+:0000 0A ' /proc/net/tcp /proc/net/tcp6"
    command = f"test -e {file} && {test}" if file else test
    return {
        "exec": {"command": ["sh", "-c", command]},
        "timeoutSeconds": 5,
        "periodSeconds": 5,
        "failureThreshold": 3,
    }


def writable(path: str, limit: str, *, memory: bool = True) -> tuple[Mount, Object]:
    """A folder that a container whose root is read-only can write: its mount and its volume."""
    name = "writes-" + path.strip("/").replace("/", "-")
    return (
        Mount(name, path, read_only=False),
        {"name": name, "emptyDir": {**({"medium": "Memory"} if memory else {}), "sizeLimit": size(limit)}},
    )


def writables(sizes: Mapping[str, str]) -> tuple[tuple[Mount, ...], tuple[Object, ...]]:
    """`writable` for each path and size."""
    made = [writable(path, limit) for path, limit in sizes.items()]
    return tuple(mount for mount, _ in made), tuple(volume for _, volume in made)


def secret_volume(name: str, sources: Mapping[str, tuple[str, ...]], mode: int = 0o400) -> Object:
    """A volume of the files that Secrets hold, Secret -> files."""
    return {
        "name": name,
        "projected": {
            "defaultMode": mode,
            "sources": [
                {"secret": {"name": secret, "items": [{"key": file, "path": file} for file in files]}}
                for secret, files in sources.items()
            ],
        },
    }


def config_volume(name: str, config_map: str) -> Object:
    """A volume of a ConfigMap's files."""
    return {"name": name, "configMap": {"name": config_map, "defaultMode": 0o444}}


def claim_volume(name: str, claim: str) -> Object:
    """A volume of a claim."""
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}
