# SPDX-License-Identifier: Apache-2.0
"""Makes the pods of everything but nodes: controller, accounting, database, REST API and metrics.

nodes.py makes the pods of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from cellblock.cluster.configuration.secrets import JWT_KEY
from cellblock.cluster.configuration.slurm_features import SlurmFeatures
from cellblock.cluster.configuration.template_facts import AccountingFacts, ClusterFacts
from cellblock.cluster.definition.kubernetes_part import Volume
from cellblock.cluster.definition.model import Role
from cellblock.cluster.engine.capabilities import capabilities
from cellblock.kubernetes import description as names
from cellblock.kubernetes import node_pods
from cellblock.kubernetes.configuration import CONFIGURATION
from cellblock.kubernetes.description import Description
from cellblock.kubernetes.metadata import Object
from cellblock.kubernetes.objects import (
    account,
    claim,
    deployment,
    disruption_budget,
    pod_service,
    service,
    stateful_set,
)
from cellblock.kubernetes.pods import (
    Container,
    Mount,
    Pod,
    Resources,
    claim_volume,
    config_volume,
    listening,
    secret_volume,
    writables,
)
from cellblock.kubernetes.secrets import key_files, secret_names

# Read by the entrypoints (images/slurm/files/usr/lib/cellblock/waiting.sh).
SECRETS = "/run/secrets/cellblock"
JAIL = "/mnt/jail"
# Seconds that a part may take to appear: a first assembly of the jail takes minutes.
WAIT_S = "900"
# Users of images/base, images/database and images/rest.
_SLURM, _MUNGE, _MYSQL, _RESTD = 64030, 65520, 65521, 65523
# Of the jail's shadow, which is read for whether an account is locked; Debian's and Ubuntu's number.
_SHADOW = 42
# Of secrets in a container that has one user. Another group they get with all volumes of the pod alone, and
# the jail's files must keep theirs.
_ONE_READS = 0o444
# What daemons of Slurm's can write besides their volumes, and how much.
_DAEMON_WRITES = {"/run": "64Mi", "/tmp": "64Mi", "/var/log": "64Mi", "/var/lib/extrausers": "100Mi"}
# munged beside a daemon; its socket is in a folder that both have.
_MUNGE_WRITES = {"/etc/munge": "1Mi", "/var/lib/munge": "1Mi", "/var/log/munge": "1Mi"}
_SOCKET = Mount("munge", "/run/munge", read_only=False)
WRITES = {
    "/run": "64Mi",
    "/tmp": "64Mi",
    "/etc/munge": "1Mi",
    "/var/log": "64Mi",
    "/var/lib/munge": "1Mi",
    "/var/lib/extrausers": "100Mi",
}
"""The same in one container, which is root's, at least until its daemon runs."""
# Seconds for slurmctld, slurmdbd and MariaDB to write down what they have in memory.
_KEEPERS_S = 120


def environment(cluster: Description) -> dict[str, str]:
    """What all pods with a daemon of Slurm's are told."""
    auth = {"CELLBLOCK_AUTH": "slurm", "CELLBLOCK_CLUSTER": cluster.file.name}
    return {
        "CELLBLOCK_CONTROLLER": cluster.controller_addresses,
        "CELLBLOCK_WAIT_S": WAIT_S,
        **(auth if cluster.file.auth == "slurm" else {}),
    }


def jail_volume(cluster: Description) -> Object:
    """The volume of the jail."""
    return claim_volume("jail", cluster.place.jail.claim)


def _beside(cluster: Description, role: Role) -> tuple[tuple[Container, ...], tuple[Object, ...]]:
    """munged for a daemon that is not root, and its volumes; with auth/slurm a daemon needs nobody.

    The image is that of the daemon: munged is in it.
    """
    if cluster.file.auth == "slurm":
        return (), ()
    writes, volumes = writables(_MUNGE_WRITES)
    munged = Container(
        "munged",
        cluster.image_of(role),
        Resources("10m", "32Mi", "128Mi"),
        {"CELLBLOCK_WAIT_S": WAIT_S},
        (Mount("key", SECRETS), _SOCKET, *writes),
        command=("tini", "--", "cellblock-init", "munge"),
        user=_MUNGE,
    )
    key = secret_volume("key", key_files(cluster), _ONE_READS)
    return (munged,), (key, {"name": "munge", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}, *volumes)


def _given(cluster: Description, role: Role, volume: Volume, mount: Mount) -> tuple[Container, ...]:
    """What gives a new volume to Slurm's user. fsGroup would change the owners in the jail, too."""
    if volume.prepared:
        return ()
    command = ("install", "-d", "-o", "slurm", "-g", "slurm", "-m", "0755", mount.path)
    return (
        Container(
            "own-volume",
            cluster.image_of(role),
            Resources("10m", "16Mi", "64Mi"),
            mounts=(mount,),
            command=command,
            capabilities=("CHOWN", "FOWNER"),
        ),
    )


def controller(cluster: Description, facts: ClusterFacts) -> Iterator[Object]:
    """slurmctld."""
    writes, volumes = writables({**_DAEMON_WRITES, "/etc/slurm": "16Mi"})
    beside, beside_volumes = _beside(cluster, "controller")
    kept = Mount("state", "/var/lib/slurm/slurmctld", read_only=False)
    told = {**environment(cluster), "CELLBLOCK_JAIL_READY": "any"}
    if facts.accounting:
        told["CELLBLOCK_ACCOUNTING"] = f"{facts.accounting.host}:{names.ACCOUNTING_PORT}"
        if facts.accounting.account is not None:
            told["CELLBLOCK_ACCOUNT"] = facts.accounting.account
    secrets = key_files(cluster) if cluster.file.auth == "slurm" else {}
    wakes = bool(node_pods.sets(cluster))
    if facts.rest:
        told["CELLBLOCK_TOKENS"] = "yes"
        secrets |= {secret_names(cluster).tokens: (JWT_KEY,)}
    pod = Pod(
        "controller",
        (
            Container(
                "slurmctld",
                cluster.image_of("controller"),
                Resources("250m", "512Mi", "4Gi"),
                told,
                (
                    # watch-configuration tries it, and takes it to /etc/slurm.
                    Mount("configuration", "/etc/cellblock/slurm"),
                    *((Mount("secrets", SECRETS),) if secrets else ()),
                    Mount("jail", JAIL),
                    kept,
                    *writes,
                    *((_SOCKET,) if beside else ()),
                    *((node_pods.requests_mount(),) if wakes else ()),
                ),
                {"slurmctld": names.CONTROLLER_PORT},
                user=_SLURM,
                ready=listening(names.CONTROLLER_PORT),
                told=("/usr/lib/cellblock/configuration-state",),
            ),
            *beside,
            *((node_pods.sidecar(cluster, _SLURM),) if wakes else ()),
        ),
        (
            config_volume("configuration", CONFIGURATION),
            *((secret_volume("secrets", secrets, _ONE_READS),) if secrets else ()),
            jail_volume(cluster),
            claim_volume("state", "controller-state"),
            *volumes,
            *beside_volumes,
            *(node_pods.volumes() if wakes else ()),
        ),
        before=_given(cluster, "controller", cluster.place.state, kept),
        groups=(_SHADOW,),
        priority=True,
        finds_nodes=True,
        grace_s=_KEEPERS_S,
    )
    replicas = cluster.file.controller.replicas
    # Two controllers share their state.
    mode = "ReadWriteOnce" if replicas == 1 else "ReadWriteMany"
    yield from _keeper(cluster, pod, "controller-state", cluster.place.state, mode, replicas)
    for host in cluster.controllers:
        yield pod_service(cluster, host, "controller", {"slurmctld": names.CONTROLLER_PORT})
    yield disruption_budget(cluster, "controller", "controller", 1)


def _keeper(
    cluster: Description,
    pod: Pod,
    name: str,
    volume: Volume,
    mode: str = "ReadWriteOnce",
    replicas: int = 1,
) -> Iterator[Object]:
    """The objects of a pod that keeps its data in the claim `name`; its first container serves the ports."""
    part = pod.component
    yield account(cluster, part)
    yield claim(cluster, name, part, volume, mode)
    yield service(cluster, part, part, pod.containers[0].ports)
    yield stateful_set(cluster, pod, part, replicas, part)


def accounting(
    cluster: Description, facts: AccountingFacts, config_map: str, tokens: bool
) -> Iterator[Object]:
    """slurmdbd. Nothing probes whether it lives: what converts a database must not be ended."""
    writes, volumes = writables(_DAEMON_WRITES)
    beside, beside_volumes = _beside(cluster, "accounting")
    archive = Mount("archive", "/var/lib/slurm/archive", read_only=False)
    told = environment(cluster)
    if facts.external:
        told["CELLBLOCK_DATABASE_HOST"] = f"{facts.database_host}:{facts.database_port}"
    chosen = secret_names(cluster)
    key = key_files(cluster) if cluster.file.auth == "slurm" else {}
    secrets = {**key, chosen.database: ("database-password",)}
    if tokens:
        told["CELLBLOCK_TOKENS"] = "yes"
        secrets |= {chosen.tokens: (JWT_KEY,)}
    pod = Pod(
        "accounting",
        (
            Container(
                "slurmdbd",
                cluster.image_of("accounting"),
                Resources("100m", "256Mi", "2Gi"),
                told,
                (
                    Mount("configuration", "/etc/cellblock"),
                    Mount("secrets", SECRETS),
                    Mount("jail", JAIL),
                    archive,
                    *writes,
                    *((_SOCKET,) if beside else ()),
                ),
                {"slurmdbd": names.ACCOUNTING_PORT},
                user=_SLURM,
                ready=listening(names.ACCOUNTING_PORT),
            ),
            *beside,
        ),
        (
            config_volume("configuration", config_map),
            secret_volume("secrets", secrets, _ONE_READS),
            jail_volume(cluster),
            claim_volume("archive", "accounting-archive"),
            *volumes,
            *beside_volumes,
        ),
        before=_given(cluster, "accounting", cluster.place.database, archive),
        groups=(_SHADOW,),
        priority=True,
        grace_s=_KEEPERS_S,
    )
    yield from _keeper(cluster, pod, "accounting-archive", cluster.place.database)


def database(cluster: Description) -> Iterator[Object]:
    """MariaDB."""
    writes, volumes = writables({"/run": "16Mi"})
    scratch, scratch_volumes = writables({"/tmp": "1Gi"})
    pod = Pod(
        "database",
        (
            Container(
                "mariadb",
                cluster.image_of("database"),
                Resources("250m", "512Mi", "1Gi"),
                {},
                (
                    Mount("secrets", SECRETS),
                    Mount("data", "/var/lib/mysql", read_only=False),
                    *writes,
                    *scratch,
                ),
                {"mariadb": names.DATABASE_PORT},
                user=_MYSQL,
                ready=listening(names.DATABASE_PORT),
            ),
        ),
        (
            secret_volume("secrets", {secret_names(cluster).database: ("database-password",)}, _ONE_READS),
            claim_volume("data", "database-data"),
            *volumes,
            *scratch_volumes,
        ),
        group=_MYSQL,
        priority=True,
        grace_s=_KEEPERS_S,
    )
    yield from _keeper(cluster, pod, "database-data", cluster.place.database)


def rest(cluster: Description, replicas: int) -> Iterator[Object]:
    """slurmrestd: no key, no jail, nobody's rights but those of the token that a request brings."""
    writes, volumes = writables({"/tmp": "1Mi"})
    pod = Pod(
        "rest",
        (
            Container(
                "slurmrestd",
                cluster.image_of("rest"),
                Resources("50m", "128Mi", "4Gi"),
                {"CELLBLOCK_WAIT_S": WAIT_S},
                # slurmrestd reads it when it starts, and then no more. Its image has nothing that tries one.
                (Mount("configuration", "/etc/slurm"), *writes),
                {"rest": names.REST_PORT},
                user=_RESTD,
                ready=listening(names.REST_PORT),
                alive=listening(names.REST_PORT),
            ),
        ),
        (config_volume("configuration", CONFIGURATION), *volumes),
    )
    yield account(cluster, "rest")
    yield service(cluster, "rest", "rest", {"rest": names.REST_PORT}, kind="ClusterIP")
    yield deployment(cluster, pod, replicas)


def metrics(cluster: Description, interval: int) -> Iterator[Object]:
    """The exporter."""
    own = SlurmFeatures(cluster.variant.release, cluster.variant.plugin_dir).openmetrics
    told = {
        **environment(cluster),
        "CELLBLOCK_METRICS_JAIL": "/run/jail-records",
        "CELLBLOCK_METRICS_SOURCE": "openmetrics" if own else "commands",
        "CELLBLOCK_METRICS_INTERVAL": str(interval),
        "CELLBLOCK_METRICS_RECORDS": f"{JAIL}/.cellblock",
    }
    writes, volumes = writables(WRITES if own else {**WRITES, "/etc/slurm": "16Mi"})
    mounts: tuple[Mount, ...] = (Mount("jail", JAIL), *writes)
    given: tuple[Object, ...] = (jail_volume(cluster), *volumes)
    if not own:
        # follow-configuration takes it to /etc/slurm.
        mounts += (Mount("configuration", "/etc/cellblock/slurm"), Mount("secrets", SECRETS))
        given += (config_volume("configuration", CONFIGURATION), secret_volume("secrets", key_files(cluster)))
    pod = Pod(
        "metrics",
        (
            Container(
                "exporter",
                cluster.image_of("metrics"),
                Resources("50m", "128Mi", "512Mi"),
                told,
                mounts,
                {"metrics": names.METRICS_PORT},
                capabilities=capabilities("metrics"),
                ready=listening(names.METRICS_PORT),
            ),
        ),
        given,
    )
    yield account(cluster, "metrics")
    yield service(cluster, "metrics", "metrics", {"metrics": names.METRICS_PORT}, kind="ClusterIP")
    yield deployment(cluster, pod, 1)
