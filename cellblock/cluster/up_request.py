# SPDX-License-Identifier: Apache-2.0
"""What `build.py up` was asked for: its options, laid over the cluster file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from cellblock.cluster.definition.cluster_file import (
    MOST_NODES,
    ClusterFile,
    JailRoot,
    load_cluster_file,
    seconds,
)
from cellblock.cluster.definition.model import ClusterSpec, EngineName, Role, SlurmVariant
from cellblock.cluster.definition.names import check_name
from cellblock.cluster.facts import state
from cellblock.errors import UsageError
from cellblock.project import Project

_PATIENCE_S = 600.0
OPTIONAL = ("accounting", "rest", "metrics")
"""Parts that a cluster can do without."""


@dataclass(frozen=True)
class UpRequest:
    """What `build.py up` was asked for; see its options, of which None are not given."""

    name: str | None = None
    variant: str | None = None
    workers: int | None = None
    ssh_port: int | None = None
    engine: str = "podman"
    mirrors: tuple[str, ...] = ()
    jail_root: str | None = None
    jail: str | None = None
    file: Path | None = None
    """The cluster file; without: the default one. What is given above takes the place of what it says."""
    wait: str | None = None
    """How long nodes that must start anew wait for their jobs, as in 10m; 0 ends the jobs."""
    without: tuple[str, ...] = ()
    """Parts of the file to leave out, of OPTIONAL."""


def patience_s(request: UpRequest) -> float:
    """Seconds that nodes which must start anew wait for their jobs. Raises UsageError."""
    if request.wait is None:
        return _PATIENCE_S
    try:
        return 0.0 if request.wait == "0" else float(seconds(request.wait))
    except ValueError as error:
        raise UsageError(f"--wait {request.wait}: {error}", hint="use --wait 10m, or --wait 0") from error


def cluster_spec(request: UpRequest, file: ClusterFile) -> ClusterSpec:
    """The cluster that `file` and `request` describe, without its images.

    Raises UsageError for an engine or a variant that there is not.
    """
    if request.engine not in get_args(EngineName):
        raise UsageError(
            f"there is no engine '{request.engine}'", hint=f"use one of: {', '.join(get_args(EngineName))}"
        )
    variant = Project().variant(file.variant)
    return ClusterSpec(
        file=file,
        variant=SlurmVariant(variant.name, variant.slurm.release, variant.slurm.plugin_dir),
        images={},
        volume=volume_path(file.name),
        engine=cast(EngineName, request.engine),
    )


def roles_of(file: ClusterFile) -> tuple[Role, ...]:
    """The roles whose images the cluster of `file` runs."""
    accounting: tuple[Role, ...] = ("accounting",) if file.accounting else ()
    if file.accounting and not file.accounting.external:
        accounting = (*accounting, "database")
    rest: tuple[Role, ...] = ("rest",) if file.rest else ()
    metrics: tuple[Role, ...] = ("metrics",) if file.metrics else ()
    return ("worker", "login", "controller", *accounting, *rest, *metrics)


def volume_path(name: str) -> Path:
    """The jail volume of the local cluster `name`."""
    return state.folder(name) / "volume"


def cluster_file(request: UpRequest) -> ClusterFile:
    """The cluster file of `request`, with what its options say in place of what the file does.

    Raises DefinitionError for a fault of the file, UsageError for one of an option.
    """
    file = load_cluster_file(request.file)
    jail, login = file.jail, file.login
    if request.name is not None:
        check_name(request.name)
        file = file.model_copy(update={"name": request.name})
    if request.variant is not None:
        file = file.model_copy(update={"variant": request.variant})
    if request.workers is not None:
        if len(file.node_sets) > 1:
            raise UsageError(
                f"--workers {request.workers}: the cluster has {len(file.node_sets)} node sets",
                hint="say in the cluster file how many nodes each has: `count`",
            )
        if not 1 <= request.workers <= MOST_NODES:
            raise UsageError(
                f"{request.workers} workers cannot run on one machine", hint=f"use 1 to {MOST_NODES}"
            )
        nodes = file.node_sets[0].model_copy(update={"count": request.workers})
        file = file.model_copy(update={"node_sets": (nodes,)})
    if request.ssh_port is not None:
        if not 1 <= request.ssh_port <= 65535:
            raise UsageError(f"{request.ssh_port} is not a port", hint="use 1 to 65535")
        login = login.model_copy(update={"ssh_port": request.ssh_port})
    if request.jail_root is not None:
        if request.jail_root not in get_args(JailRoot):
            raise UsageError(
                f"root in the jail cannot be '{request.jail_root}' to Slurm",
                hint=f"use --jail-root with one of: {', '.join(get_args(JailRoot))}",
            )
        jail = jail.model_copy(update={"root": request.jail_root})
    if request.jail is not None:
        jail = jail.model_copy(update={"image": request.jail})
    for part in request.without:
        if part not in OPTIONAL:
            raise UsageError(
                f"a cluster cannot be without '{part}'",
                hint=f"use --without with one of: {', '.join(OPTIONAL)}",
            )
    left_out = dict.fromkeys(request.without)
    return file.model_copy(update={"jail": jail, "login": login, **left_out})
