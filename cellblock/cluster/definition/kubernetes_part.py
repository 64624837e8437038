# SPDX-License-Identifier: Apache-2.0
"""Defines the part `kubernetes` of the cluster file, read only where the cluster is on Kubernetes.

docs/kubernetes.md describes its keys. kubernetes_value_types.py has the types of its single values.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from cellblock.cluster.definition.kubernetes_value_types import (
    Amount,
    AnnotationValue,
    Cpu,
    DnsLabel,
    ImageReference,
    LabelKey,
    LabelValue,
    Network,
    ObjectName,
    Repository,
    SshKey,
    Tag,
    Tolerated,
)
from cellblock.cluster.definition.strict_model import Strict
from cellblock.cluster.definition.value_types import ImageName
from cellblock.yaml_source import FaultAt


class Volume(Strict):
    """A volume that a PersistentVolumeClaim asks for."""

    size: Amount = "10Gi"
    """Its size."""
    storage_class: ObjectName | None = None
    """Its storage class; without: the cluster's default one."""
    prepared: bool = False
    """Whether new volumes of that class belong to the daemon's user. Without, a container that is root for a
    moment gives a new volume to the user, which the Pod Security Standard `restricted` does not allow."""


class JailBackup(Strict):
    """Backups of the jail to a restic repository (docs/jail-kubernetes.md)."""

    repository: str = Field(min_length=1, pattern=r"^[^\s\x00-\x1f]+$")
    """The repository: s3:ADDRESS/BUCKET, rest:ADDRESS, ..."""
    secret: ObjectName = "jail-backup"
    """The Secret with `password`, and the variables that the repository's server asks for."""
    schedule: str = "17 3 * * *"
    """When, as in crontab(5)."""
    time_zone: str | None = None
    """Of the schedule, as Europe/Zurich; without: that of Kubernetes' controllers."""


class JailVolume(Strict):
    """The volume of the jail, and the Job that fills it."""

    size: Amount = "500Gi"
    """Its size."""
    storage_class: ObjectName | None = None
    """Its storage class; without: the cluster's default one."""
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    """`ReadWriteMany`; with `ReadWriteOnce` all pods must be on one machine, so the cluster has one node."""
    claim: ObjectName = "jail"
    """The name of the claim. One of the site's own, with `existing`, is not made."""
    existing: bool = False
    """Whether the claim is there already, and is not made."""
    shards: int = Field(default=1, ge=1, le=1000)
    """How many pods fill it together."""
    allow_lossy: bool = False
    """Whether to go on where the filesystem, NFS say, cannot hold something."""
    plain_http: bool = False
    """Whether the registry of the jail's image is spoken to by http."""
    registry_secret: ObjectName | None = None
    """The Secret (kubernetes.io/dockerconfigjson) to read the jail's image with."""
    registry_ca: ObjectName | None = None
    """The ConfigMap whose `ca.crt` holds the authorities to trust for that registry."""
    backup: JailBackup | None = None
    """Backups of the jail; without: none."""


class LoginService(Strict):
    """How the login nodes are reached."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """The type of the Service."""
    node_port: int | None = Field(default=None, ge=30000, le=32767)
    """With `NodePort`: the port of each machine."""
    annotations: dict[LabelKey, AnnotationValue] = Field(default_factory=dict)
    """Annotations of the Service, by which clouds are told what a `LoadBalancer` is to be."""
    source_ranges: tuple[Network, ...] = Field(default=(), strict=False)
    """With `LoadBalancer`: the networks that may reach it, as 192.0.2.0/24. Without: all."""
    replicas: int = Field(default=1, ge=1, le=64)
    """How many login nodes there are."""
    authorized_keys: tuple[SshKey, ...] = Field(default=(), strict=False)
    """Public keys of those who log in as root, that is as administrators of the jail."""


class SecretNames(Strict):
    """Secrets that are there already. What is not named `render` makes."""

    key: ObjectName | None = None
    """The key by which daemons know each other: `munge.key`, or `slurm.jwks` with `auth: slurm`."""
    tokens: ObjectName | None = None
    """The key of tokens, `jwt_hs256.key`."""
    database: ObjectName | None = None
    """The password of slurmdbd, `database-password`."""
    host_keys: ObjectName | None = None
    """The login nodes' host keys, `ssh_host_ed25519_key` and `ssh_host_rsa_key`."""


class Requests(Strict):
    """What Kubernetes sets aside for a pod."""

    cpu: Cpu
    """Processors, as in "4" or "500m"."""
    memory: Amount
    """Memory, as in 8Gi."""


class Kubernetes(Strict):
    """Where and how the cluster runs on Kubernetes."""

    namespace: DnsLabel = "slurm"
    """The namespace; a cluster has one of its own."""
    registry: Repository | None = None
    """HOST/PATH that the images were pushed to (`build.py push`)."""
    tag: Tag | None = None
    """The images' tag; without: the variant's name."""
    images: dict[ImageName, ImageReference] = Field(default_factory=dict)
    """Images by name, as in `worker: HOST/PATH@sha256:DIGEST`; they go before `registry`."""
    pull_secrets: tuple[ObjectName, ...] = Field(default=(), strict=False)
    """Secrets by which machines pull the images."""
    jail: JailVolume = JailVolume()
    """The jail's volume."""
    state: Volume = Volume()
    """The volume of slurmctld's state."""
    database: Volume = Volume(size="20Gi")
    """The volume of the accounting's database."""
    login: LoginService = LoginService()
    """The login nodes."""
    secrets: SecretNames = SecretNames()
    """Secrets that are there already."""
    cgroup: Literal["v2", "disabled"] = "v2"
    """Whether machines have cgroup v2, by which jobs are limited; `disabled`: they are tracked alone."""
    topology: LabelKey | None = None
    """The label of machines that says where they are, as topology.kubernetes.io/zone. Each set names its
    value in `node_selector`. Slurm keeps jobs where the value is one, if it can. Without: no topology."""
    topology_block: int | None = Field(default=None, ge=1)
    """How many nodes at least share a value, as those of a rack with NVLink do: the topology is then one of
    blocks, which Slurm 24.11 and later gives whole to jobs. Without: a tree of switches."""
    closed_to_jobs: tuple[Network, ...] = Field(default=(), strict=False)
    """Networks that jobs and sessions are kept out of: those of the machines and of Kubernetes' API, as
    10.0.0.0/16. What clouds tell machines by 169.254.0.0/16 always is."""
    domain: ObjectName = "cluster.local"
    """The domain of Kubernetes' own names."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels of the machines that all but the nodes run on."""
    tolerations: tuple[Tolerated, ...] = Field(default=(), strict=False)
    """Taints that all but the nodes tolerate: KEY[=VALUE][:EFFECT]."""
    priority_class: ObjectName | None = None
    """The priority class of controller, accounting and database."""

    @model_validator(mode="after")
    def _is_whole(self) -> Kubernetes:
        if self.login.node_port and self.login.type != "NodePort":
            raise FaultAt("goes with `type: NodePort`", "login", "node_port")
        if self.login.source_ranges and self.login.type != "LoadBalancer":
            raise FaultAt("goes with `type: LoadBalancer`", "login", "source_ranges")
        if self.jail.existing and self.jail.storage_class:
            raise FaultAt("the claim is there already (`existing`)", "jail", "storage_class")
        return self
