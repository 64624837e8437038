# SPDX-License-Identifier: Apache-2.0
"""Decides what each container of a cluster is to be: image, environment, mounts, rights, ports.

Nothing is started here. `cellblock.cluster.engine.containers` creates containers from these specifications,
and `cellblock.cluster.changing.changes` compares them with those of the cluster that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cellblock.cluster.configuration.health import SITE_CHECKS
from cellblock.cluster.configuration.slurm_features import SlurmFeatures
from cellblock.cluster.configuration.template_facts import AccountingFacts, ClusterFacts, NodeSetFacts
from cellblock.cluster.definition.external_database import changed_ns
from cellblock.cluster.definition.model import ClusterSpec, Role
from cellblock.cluster.engine.capabilities import capabilities
from cellblock.cluster.facts.host import CgroupMode, Limit

LABEL_CLUSTER = "org.cellblock.cluster"
LABEL_ROLE = "org.cellblock.role"
LABEL_ADDRESS = "org.cellblock.address"
LABEL_HOSTS = "org.cellblock.hosts"

# Read by the entrypoints (images/slurm/files/usr/lib/cellblock/waiting.sh).
_SECRETS = "/run/secrets/cellblock"
_SSH_PORT = 22
# slurmrestd's; images/rest.
_REST_PORT = 6820
_REST_USER = "slurmrestd"
# SlurmctldPort; slurm.conf(5).
_SLURMCTLD_PORT = 6817
# DbdPort; slurmdbd.conf(5).
_SLURMDBD_PORT = 6819
VERDICTS = "verdicts"
"""Folder below .cellblock of the volume: what the jobs that measure nodes found of each."""
# Where the exporter listens in its container (images/metrics).
_METRICS_PORT = 9341
_FUSE = "/dev/fuse"
# The kernel's default, which Docker changes: users listen on no port of a daemon's while it starts again.
_PORTS_OF_ROOT = {"net.ipv4.ip_unprivileged_port_start": "1024"}
# Users with as many processes as one may have that it takes to fill a container.
_USERS_TO_FILL = 8

# What a worker can write outside the jail: file systems in memory. Its root is read-only, because slurmd
# serves sbcast without asking any plugin, and writes for a user there, or for root as root. noexec:
# what is brought there is not run there; a batch script is executed from the spool, so not on that.
_NOT_RUN = "nosuid,nodev,noexec"
_WORKER_WRITES = {
    "/run": f"size=64m,mode=0755,{_NOT_RUN}",
    # Where sbcast is meant to write: the mount plan shows it to jobs, at the same path.
    "/run/bcast": "size=10%,mode=1777,nosuid,nodev",
    # Root's alone (cellblock-init); without a word podman makes them half of the memory.
    "/tmp": f"size=64m,mode=0711,{_NOT_RUN}",
    "/var/tmp": f"size=1m,mode=0711,{_NOT_RUN}",
    # Copies of the jail's accounts, of 16 MiB at most each, and once more while they are written.
    "/var/lib/extrausers": f"size=100m,mode=0755,{_NOT_RUN}",
    "/var/log": f"size=256m,mode=0755,{_NOT_RUN}",
}
# The spool is below; users, as whom slurmd opens sockets of PMI-2 there, pass through. It has the scripts of
# the jobs on the node, of 4 MiB at most each (max_script_size in slurm.conf(5)). A node whose spool is full
# is drained.
_SPOOL_MB = 256
_SCRIPT_MB = 4
# What containers whose root is read-only can write besides their volumes.
_WRITES: dict[Role, dict[str, str]] = {
    "accounting": dict.fromkeys(
        ("/run", "/tmp", "/etc/munge", "/var/log", "/var/lib/munge", "/var/lib/extrausers"),
        f"size=100m,mode=0755,{_NOT_RUN}",
    ),
    "metrics": dict.fromkeys(
        ("/run", "/tmp", "/etc/munge", "/var/log", "/var/lib/munge", "/var/lib/extrausers"),
        f"size=100m,mode=0755,{_NOT_RUN}",
    ),
    "database": {"/run": f"size=16m,mode=0755,{_NOT_RUN}", "/tmp": f"size=1g,mode=1777,{_NOT_RUN}"},
    "rest": {"/tmp": f"size=1m,mode=0700,{_NOT_RUN}"},
}


def _worker_writes(cpus: int) -> dict[str, str]:
    """As many jobs at a time as the node has processors."""
    size = _SPOOL_MB + _SCRIPT_MB * cpus
    return {**_WORKER_WRITES, "/var/spool": f"size={size}m,mode=0711,nosuid,nodev"}


@dataclass(frozen=True)
class Mount:
    """A folder of this machine in a container."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Container:
    """One container: everything that the Docker API is told about it."""

    name: str
    role: Role
    hostname: str
    image: str
    environment: Mapping[str, str]
    mounts: tuple[Mount, ...]
    cap_add: tuple[str, ...]
    limits: tuple[Limit, ...]
    pids_limit: int
    """Processes and threads."""
    security_opt: tuple[str, ...] = ()
    private_cgroup: bool = False
    ssh_port: int | None = None
    rest_port: int | None = None
    user: str = ""
    """Whom its first process is; root without."""
    metrics_port: int | None = None
    read_only: bool = False
    tmpfs: Mapping[str, str] = field(default_factory=dict)
    """Path -> mount options; what can be written when the root is read-only."""
    devices: tuple[str, ...] = ()
    """Devices of this machine, at the same path."""
    sysctls: Mapping[str, str] = field(default_factory=dict)
    """Of the container's network."""

    @property
    def ports(self) -> dict[str, tuple[str, int]]:
        """Published ports in the docker SDK's form; on the loopback address only."""
        inside = {
            _SSH_PORT: self.ssh_port,
            _REST_PORT: self.rest_port,
            _METRICS_PORT: self.metrics_port,
        }
        return {f"{port}/tcp": ("127.0.0.1", outside) for port, outside in inside.items() if outside}


def network_name(cluster: str) -> str:
    """The bridge network of a cluster."""
    return f"cellblock-{cluster}"


def container_name(cluster: str, hostname: str) -> str:
    """The engine's name of the container with `hostname`."""
    return f"cellblock-{cluster}-{hostname}"


def plan(
    spec: ClusterSpec,
    cluster: ClusterFacts,
    folder: Path,
    limits: tuple[Limit, ...],
    cgroup: CgroupMode,
    pids_limit: int,
) -> tuple[Container, ...]:
    """The containers of `spec`, whose configuration and secrets are below `folder`."""
    config, secrets = folder / "config", folder / "secrets"
    # The jail's /etc as a folder: useradd replaces single files by rename. jail-accounts alone reads it.
    accounts = Mount(str(spec.volume / "root" / "etc"), "/mnt/jail-etc")
    # Jobs and sessions write the jail; what they may write there is the tree's own affair.
    jail = Mount(str(spec.volume), "/mnt/jail", writable=True)
    slurm = Mount(str(config / "slurm"), "/etc/slurm")
    # munge's key, or auth/slurm's: by it daemons know each other.
    key = Mount(str(secrets / spec.file.auth), _SECRETS)

    # Not a limit of the container: the kernel counts a uid's processes in all containers, munged's, too.
    users = {"CELLBLOCK_USER_PROCESSES": str(pids_limit // _USERS_TO_FILL)}
    inside = {"CELLBLOCK_JAIL_ROOT": spec.file.jail.root, **users}
    nodes = ("worker", "login")
    keyless = ("database", "rest")
    auth = (
        {"CELLBLOCK_AUTH": spec.file.auth, "CELLBLOCK_CLUSTER": spec.name}
        if spec.file.auth != "munge"
        else {}
    )

    def container(
        role: Role,
        hostname: str,
        mounts: tuple[Mount, ...],
        *,
        environment: Mapping[str, str] | None = None,
        security_opt: tuple[str, ...] = (),
        rest_port: int | None = None,
        tmpfs: Mapping[str, str] | None = None,
    ) -> Container:
        return Container(
            name=container_name(spec.name, hostname),
            role=role,
            hostname=hostname,
            image=spec.images[spec.file.image_of(role, hostname)],
            environment={
                **(environment or {}),
                **(inside if role in nodes else {}),
                **({} if role in keyless else auth),
            },
            mounts=mounts,
            cap_add=capabilities(role),
            limits=limits,
            pids_limit=pids_limit,
            security_opt=security_opt,
            private_cgroup=role == "worker" and cgroup == "v2",
            ssh_port=spec.file.login.ssh_port if role == "login" else None,
            rest_port=rest_port,
            user=_REST_USER if role == "rest" else "",
            metrics_port=spec.file.metrics.port if role == "metrics" and spec.file.metrics else None,
            read_only=role in _WRITES or tmpfs is not None,
            tmpfs=tmpfs or _WRITES.get(role, {}),
            # Users' images are mounted by it; without the module they are unpacked.
            devices=(_FUSE,) if role == "worker" and Path(_FUSE).exists() else (),
            sysctls=_PORTS_OF_ROOT if role in nodes else {},
        )

    # The AppArmor profiles of podman and of Docker forbid all mounts, whatever the capabilities. Docker's
    # seccomp profile forbids pivot_root, and podman's, with an older libseccomp, calls that are newer than
    # it: without listmount(2) each step builds its jail anew. Both matter only to those who make the mounts.
    mounting = ("seccomp=unconfined", "apparmor=unconfined")
    state = Mount(str(folder / "slurmctld"), "/var/lib/slurm/slurmctld", writable=True)
    # With a REST API, the controller's checked copy of the jail's accounts, whose names slurmrestd shows.
    copy = str(folder / "accounts"), "/var/lib/extrausers"
    shared = (Mount(*copy, writable=True),) if cluster.rest else ()
    tokens = {"CELLBLOCK_TOKENS": "yes"} if cluster.rest else {}
    ask = _controllers(spec)
    health = spec.file.health
    # It measures nodes by jobs, and the exporter shows what they found.
    told = spec.file.metrics and health and health.active
    verdicts = Mount(str(spec.volume / ".cellblock" / VERDICTS), "/mnt/jail-verdicts", writable=True)
    containers = [
        container(
            "controller",
            host,
            (
                *(slurm, Mount(str(secrets / "controller"), _SECRETS), accounts, state, *shared),
                *((verdicts,) if told else ()),
            ),
            environment={**_accounting(cluster.accounting), **tokens, **ask},
        )
        for host in spec.file.controllers
    ]
    if cluster.accounting:
        if not cluster.accounting.external:
            keep = Mount(str(folder / "database"), "/var/lib/mysql", writable=True)
            password = Mount(str(secrets / "database"), _SECRETS)
            # Jobs reach its port, too.
            clients = {"CELLBLOCK_DATABASE_CLIENTS": cluster.accounting.host}
            host = cluster.accounting.database_host
            containers.append(container("database", host, (keep, password), environment=clients))
        accounting = (
            Mount(str(config / "accounting"), "/etc/cellblock"),
            Mount(str(secrets / "accounting"), _SECRETS),
            accounts,
            Mount(str(folder / "archive"), "/var/lib/slurm/archive", writable=True),
        )
        where = {**tokens, **_database(spec, cluster.accounting)}
        containers.append(container("accounting", cluster.accounting.host, accounting, environment=where))
    site_checks = (Mount(health.folder, SITE_CHECKS),) if health and health.folder else ()
    containers += [
        container(
            "worker",
            node,
            (jail, key, Mount(str(config / "worker"), "/etc/cellblock"), *site_checks),
            environment={
                **ask,
                "CELLBLOCK_CGROUP": cgroup,
                "CELLBLOCK_NODE_CONF": node_line(nodes_of),
                **({"CELLBLOCK_GRES": nodes_of.gres} if nodes_of.gres else {}),
            },
            security_opt=mounting,
            tmpfs=_worker_writes(nodes_of.cpus),
        )
        for nodes_of in cluster.node_sets
        for node in nodes_of.nodes
    ]
    login = (jail, slurm, Mount(str(secrets / "login"), _SECRETS))
    containers.append(
        container(
            "login",
            "login",
            (*login, Mount(str(config / "login"), "/etc/cellblock")),
            environment=ask,
            security_opt=mounting,
        )
    )
    if cluster.rest:
        # No key, and no jail.
        containers += [
            container("rest", host, (slurm, Mount(*copy)), rest_port=port)
            for host, port in cluster.rest.ports.items()
        ]
    if spec.file.metrics:
        # What the volume's records say of the jail: root's alone, who copies a few numbers for the exporter.
        records = Mount(str(spec.volume / ".cellblock"), "/mnt/jail-records")
        own = SlurmFeatures(spec.variant.release, spec.variant.plugin_dir).openmetrics
        containers.append(
            container(
                "metrics",
                "metrics",
                # slurmctld's own endpoints are asked without a key, and name the users.
                (records,) if own else (records, slurm, key, accounts),
                environment={
                    **ask,
                    "CELLBLOCK_METRICS_JAIL": "/run/jail-records",
                    "CELLBLOCK_METRICS_SOURCE": "openmetrics" if own else "commands",
                    "CELLBLOCK_METRICS_INTERVAL": str(spec.file.metrics.interval),
                },
            )
        )
    return tuple(containers)


def _database(spec: ClusterSpec, accounting: AccountingFacts) -> dict[str, str]:
    """What slurmdbd's container is told of a database that is not the cluster's own.

    The time of the password's file is in it: the container starts anew with a new password.
    """
    external = spec.file.accounting.external if spec.file.accounting else None
    if external is None:
        return {}
    return {
        "CELLBLOCK_DATABASE_HOST": f"{accounting.database_host}:{accounting.database_port}",
        "CELLBLOCK_DATABASE_PASSWORD_OF": str(changed_ns(external)),
    }


def _controllers(spec: ClusterSpec) -> dict[str, str]:
    """What containers are told of two controllers; of one they know."""
    hosts = spec.file.controllers
    addresses = ",".join(f"{host}:{_SLURMCTLD_PORT}" for host in hosts)
    return {"CELLBLOCK_CONTROLLER": addresses} if len(hosts) > 1 else {}


def _accounting(accounting: AccountingFacts | None) -> dict[str, str]:
    """What the controller's container is told of it."""
    if accounting is None:
        return {}
    where = {"CELLBLOCK_ACCOUNTING": f"{accounting.host}:{_SLURMDBD_PORT}"}
    return where if accounting.account is None else {**where, "CELLBLOCK_ACCOUNT": accounting.account}


def node_line(nodes: NodeSetFacts) -> str:
    """What slurmd says of its node when it registers: the rest of a NodeName line of slurm.conf(5)."""
    options = {
        # Undeclared, slurmd says how its processors are made: sockets, cores, threads.
        "CPUs": str(nodes.cpus) if nodes.declares_cpus else "",
        "RealMemory": str(nodes.memory_mb),
        "Feature": ",".join(nodes.features),
        "Weight": str(nodes.weight) if nodes.weight != 1 else "",
        "Gres": nodes.gres,
        "Topology": nodes.place,
    }
    return " ".join(f"{key}={value}" for key, value in options.items() if value)
