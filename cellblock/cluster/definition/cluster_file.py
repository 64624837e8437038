# SPDX-License-Identifier: Apache-2.0
"""Defines and reads the cluster file, in which a site describes its cluster (docs/cluster-file.md).

    name: cellblock
    variant: debian13
    auth: munge
    jail: {image: jail, root: nobody, level: capabilities}
    accounting: {database: embedded}
    login: {ssh_port: 2222}
    node_sets: [{name: worker, count: 2}]
    partitions: [{name: main, default: true}]
    slurm: {extra: {slurm.conf: "MaxArraySize=5000"}}

A value that ends in a file of Slurm's may contain only what Slurm takes there. A line break, for example,
would add a line of configuration, so it is refused. model.py has the types for a cluster that runs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from cellblock import paths
from cellblock.cluster.definition.external_database import Database, ExternalDatabase
from cellblock.cluster.definition.health_part import Health, active_checks, own_checks
from cellblock.cluster.definition.kubernetes_part import Kubernetes
from cellblock.cluster.definition.names import CONTROLLERS, DEFAULT_NAME, Auth, JailRoot
from cellblock.cluster.definition.node_set import NodeSet
from cellblock.cluster.definition.site_lines import POWER_KEYS, check_lines, keys
from cellblock.cluster.definition.strict_model import Strict as _Strict
from cellblock.cluster.definition.value_types import ClusterName, ImageName, Name, Period, Time, Word
from cellblock.errors import DefinitionError
from cellblock.yaml_source import FaultAt, YamlSource, nearest, read_yaml, validate

MOST_NODES = 200
"""Nodes of a cluster on one machine: those of a /24 bridge, with room for the rest."""

_KEY = re.compile(r"[A-Za-z]{1,40}")
# What a partition's line says by fields of its own; slurm.conf(5), PARTITION CONFIGURATION.
_OWN_OPTIONS = {
    "partitionname": "name",
    "nodes": "node_sets",
    "default": "default",
    "maxtime": "max_time",
    "state": "state",
    "prioritytier": "priority",
}


class Jail(_Strict):
    """The shared root: the image it is made of, what root in it is to Slurm, and how jobs are held in it."""

    image: ImageName = "jail"
    """The image that an empty volume is filled from; `jail-devel` has compilers."""
    root: JailRoot = "nobody"
    """What root in the jail is to Slurm: `nobody`, who submits no jobs, or `operator`."""
    level: Literal["filesystem", "capabilities", "pid"] = "capabilities"
    """How far jobs are held (docs/jail-isolation.md)."""


class Purge(_Strict):
    """How long the accounting keeps records of a kind; without a period, for ever.

    Slurm purges each month, day or hour, by the period's unit (slurmdbd.conf(5)).
    """

    events: Period | None = None
    """Nodes that were down or drained, and what became of the cluster's resources."""
    jobs: Period | None = None
    """Jobs, as in 24months: what sacct shows."""
    reservations: Period | None = None
    """Reservations."""
    steps: Period | None = None
    """Steps of jobs; there are many more of them than jobs."""
    suspensions: Period | None = None
    """When jobs were suspended."""
    transactions: Period | None = None
    """Changes of accounts, users and limits."""
    usage: Period | None = None
    """What sreport shows: the use of each account by hour, day and month."""
    archive: bool = True
    """Whether records are written to files, beside the database, before they go."""


class Accounting(_Strict):
    """Slurm's accounting: slurmdbd, and where its database is."""

    database: Database = "embedded"
    """`embedded`: a MariaDB of the cluster's own. Else one of the site's."""
    enforce: tuple[Literal["associations", "limits", "qos", "safe", "nosteps"], ...] = Field(
        default=("limits", "qos"), strict=False
    )
    """AccountingStorageEnforce: what of associations and limits is in force."""
    account: Word | None = "users"
    """Each user of the jail gets an association with this account by itself; none with null."""
    purge: Purge = Purge()
    """How long records are kept."""

    @property
    def external(self) -> ExternalDatabase | None:
        """The site's database, where it is not the cluster's own."""
        return self.database if isinstance(self.database, ExternalDatabase) else None


class Rest(_Strict):
    """Slurm's REST API: slurmrestd (docs/rest.md)."""

    replicas: int = Field(default=1, ge=1, le=16)
    """How many; on one machine each has a port of its own, from `port` upwards."""
    port: int = Field(default=6820, ge=1, le=65519)
    """Port of the first one on 127.0.0.1."""


class Metrics(_Strict):
    """An exporter of Slurm's figures for Prometheus."""

    port: int = Field(default=9341, ge=1, le=65535)
    """Port of `/metrics` on 127.0.0.1."""
    interval: int = Field(default=30, ge=5, le=3600)
    """Seconds between questions to slurmctld, however many scrape."""


class Controller(_Strict):
    """slurmctld, which decides what runs where."""

    replicas: int = Field(default=1, ge=1, le=2)
    """How many: of two, the second acts when the first is gone (docs/cluster-file.md)."""


class Login(_Strict):
    """The login node."""

    image: ImageName | None = None
    """The image that it runs; without: `login`. Another one is made `from: login`."""
    ssh_port: int = Field(default=2222, ge=1, le=65535)
    """Port of the login node's sshd on 127.0.0.1."""


class Partition(_Strict):
    """A partition: nodes under one set of rules."""

    name: Name
    """What `sbatch --partition` calls it."""
    node_sets: tuple[str, ...] = Field(default=(), strict=False)
    """Names of the node sets in it; all, when none is named."""
    default: bool = False
    """Whether jobs that name no partition go here."""
    max_time: Time = "unlimited"
    """The longest time of a job, as in 7d."""
    state: Literal["up", "down", "drain", "inactive"] = "up"
    """What the partition does with jobs."""
    priority: int = Field(default=1, ge=0, le=65533)
    """PriorityTier: jobs of a higher one go first, and may preempt."""
    options: dict[str, Word] = Field(default_factory=dict)
    """Further options of a partition's line in slurm.conf, as in `OverSubscribe: FORCE:2`."""

    @model_validator(mode="after")
    def _options_are_options(self) -> Partition:
        for key in self.options:
            if not _KEY.fullmatch(key):
                raise ValueError(f"options: '{key}' is no option of a partition: letters alone")
            if key.lower() in _OWN_OPTIONS:
                raise ValueError(f"options: {key} is set by the field {_OWN_OPTIONS[key.lower()]}")
        return self


class SlurmLines(_Strict):
    """Lines of the site's own in Slurm's files."""

    extra: dict[Literal["slurm.conf", "gres.conf", "cgroup.conf"], str] = Field(default_factory=dict)
    """File and lines. A line for a default of Cellblock's takes its place; what it must set is refused."""

    @model_validator(mode="after")
    def _lines_are_lines(self) -> SlurmLines:
        for file, text in self.extra.items():
            check_lines(file, text)
        return self


class ClusterFile(_Strict):
    """The keys of a cluster file."""

    name: ClusterName = DEFAULT_NAME
    """Name of the cluster: Slurm's ClusterName, and part of the names of what runs."""
    variant: str | None = None
    """Variant of the images (images/variants.yaml); without: the newest stable one of the host's family."""
    images: tuple[str, ...] = Field(default=(), strict=False)
    """Folders of the site's own images and variants, as `--images` takes them; relative ones begin where this
    file is."""
    auth: Auth = "munge"
    """What says to Slurm who asks: `munge`, or `slurm`, its own auth/slurm with sackd, from 24.11 on."""
    jail: Jail = Jail()
    """The shared root."""
    accounting: Accounting | None = None
    """Slurm's accounting; without: none."""
    controller: Controller = Controller()
    """slurmctld."""
    rest: Rest | None = None
    """Slurm's REST API, and tokens for it; without: none."""
    metrics: Metrics | None = None
    """An exporter for Prometheus; without: none."""
    login: Login = Login()
    """The login node."""
    node_sets: tuple[NodeSet, ...] = Field(
        default=(NodeSet(name="worker", count=2),), min_length=1, strict=False
    )
    """The nodes."""
    partitions: tuple[Partition, ...] = Field(
        default=(Partition(name="main", default=True),), min_length=1, strict=False
    )
    """The partitions."""
    health: Health | None = None
    """Checks of the nodes (docs/health.md); without: none."""
    slurm: SlurmLines = SlurmLines()
    """Lines of the site's own in Slurm's files."""
    kubernetes: Kubernetes | None = None
    """What the cluster has on Kubernetes (docs/kubernetes.md); elsewhere it does nothing."""

    @model_validator(mode="after")
    def _names_fit(self) -> ClusterFile:
        sets = [one.name for one in self.node_sets]
        for key, names in (("node_sets", sets), ("partitions", [one.name for one in self.partitions])):
            for number, name in enumerate(names):
                if name in names[:number]:
                    raise FaultAt(f"the name '{name}' stands twice", key, number, "name")
        for number, partition in enumerate(self.partitions):
            for place, name in enumerate(partition.node_sets):
                if name not in sets:
                    raise FaultAt(
                        f"there is no node set '{name}'; {nearest(name, sets)}",
                        *("partitions", number, "node_sets", place),
                    )
        default = [number for number, partition in enumerate(self.partitions) if partition.default]
        if not default:
            raise FaultAt("one of them must have `default: true`", "partitions")
        if len(default) > 1:
            raise FaultAt("another partition is the default one already", "partitions", default[1], "default")
        return self

    @model_validator(mode="after")
    def _ports_differ(self) -> ClusterFile:
        if self.rest and 0 <= self.login.ssh_port - self.rest.port < self.rest.replicas:
            raise FaultAt(f"{self.login.ssh_port} is the port of login.ssh_port, too", "rest", "port")
        return self

    @model_validator(mode="after")
    def _kubernetes_can_run_it(self) -> ClusterFile:
        place = self.kubernetes
        if place is None:
            return self
        if place.jail.access_mode == "ReadWriteOnce" and len(self.nodes) > 1:
            raise FaultAt(
                f"one machine alone can mount the jail, and the cluster has {len(self.nodes)} nodes: "
                "use ReadWriteMany, with a storage class that has it",
                *("kubernetes", "jail", "access_mode"),
            )
        if self.health and self.health.folder:
            raise FaultAt(
                "pods do not see folders of this machine: put the checks into an image of your own, at "
                "/usr/lib/cellblock/health-site",
                *("health", "folder"),
            )
        for at, one in enumerate(self.node_sets):
            image = one.image or "worker"
            if place.registry is None and image not in place.images:
                raise FaultAt(
                    f"set '{one.name}' runs the image '{image}', which neither kubernetes.registry nor "
                    "kubernetes.images says where to find",
                    *("node_sets", at, "image" if one.image else "name"),
                )
            if one.resources.cpu is None or one.resources.memory is None:
                raise FaultAt(
                    f"set '{one.name}' needs `resources: {{cpu: N, memory: SIZE}}` on Kubernetes: what each "
                    "pod gets of its machine",
                    *("node_sets", at, "resources"),
                )
            if place.topology and not one.node_selector.get(place.topology):
                raise FaultAt(
                    f"kubernetes.topology needs the place of set '{one.name}': "
                    f"`node_selector: {{{place.topology}: VALUE}}`",
                    *("node_sets", at, "node_selector" if one.node_selector else "name"),
                )
        return self

    @model_validator(mode="after")
    def _checks_are_there(self) -> ClusterFile:
        """A site's own are known on the nodes alone."""
        if self.health and not self.health.folder and not self.images:
            checks = own_checks() + active_checks()
            for place, name in self.health.named:
                if name not in checks:
                    raise FaultAt(f"there is no check '{name}'; {nearest(name, checks)}", "health", *place)
        return self

    @model_validator(mode="after")
    def _power_is_ours_on_demand(self) -> ClusterFile:
        taken = POWER_KEYS & set(keys(self.slurm.extra.get("slurm.conf", "")))
        if taken and any(one.on_demand for one in self.node_sets):
            raise FaultAt(
                f"{', '.join(sorted(taken))}: set by Cellblock where node sets are `on_demand`",
                *("slurm", "extra", "slurm.conf"),
            )
        return self

    @property
    def controllers(self) -> tuple[str, ...]:
        """The hosts of slurmctld, the first one first."""
        return CONTROLLERS[: self.controller.replicas]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all nodes."""
        return tuple(node for one in self.node_sets for node in one.nodes)

    def image_of(self, role: str, host: str = "") -> str:
        """The name of the image that the container `host` of `role` runs."""
        if role == "login":
            return self.login.image or role
        found = (one.image for one in self.node_sets if role == "worker" and host in one.nodes)
        return next(found, None) or role

    @property
    def default_nodes(self) -> tuple[str, ...]:
        """The names of the nodes of the default partition."""
        partition = next(one for one in self.partitions if one.default)
        sets = partition.node_sets or tuple(one.name for one in self.node_sets)
        return tuple(node for one in self.node_sets if one.name in sets for node in one.nodes)


def default_file() -> Path:
    """The cluster file that `up` uses when it is given none."""
    return paths.PROJECT / "deploy" / "cluster.yaml"


def load_cluster_file(path: Path | None = None) -> ClusterFile:
    """The cluster file at `path`, or the default one.

    Raises DefinitionError, naming file, line and key, when it cannot be read or says what cannot be.
    """
    source = read_yaml(path or default_file())
    if not isinstance(source.data, dict):
        raise DefinitionError(
            f"{source.path}: holds no keys",
            hint="`build.py render cluster` prints a cluster file to start from",
        )
    file = validate(source, ClusterFile)
    for place, folder in enumerate(file.images):
        if not (source.path.parent / folder).is_dir():
            raise DefinitionError(
                f"{source.path}:{source.line(('images', place))}: images.{place}: there is no folder "
                f"{source.path.parent / folder}",
                hint=f"correct {source.path}: relative folders begin where it is",
            )
    return file.model_copy(
        update={
            "images": tuple(str(source.path.parent.absolute() / each) for each in file.images),
            "health": _with_folder(file.health, source),
        }
    )


def _with_folder(health: Health | None, source: YamlSource) -> Health | None:
    """The part with its folder as an absolute path."""
    if health is None or health.folder is None:
        return health
    folder = source.path.parent.absolute() / health.folder
    if not folder.is_dir():
        raise DefinitionError(
            f"{source.path}:{source.line(('health', 'folder'))}: health.folder: there is no folder {folder}",
            hint=f"make it, or correct {source.path}: relative folders begin where it is",
        )
    return health.model_copy(update={"folder": str(folder)})
