# SPDX-License-Identifier: Apache-2.0
"""Combines the options of `build.py up` with the cluster file into the cluster to run.

Other commands that describe a cluster by the same options use it, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from pydantic import ValidationError

from cellblock.cluster.configuration.slurm_features import SlurmFeatures
from cellblock.cluster.definition.amounts import seconds
from cellblock.cluster.definition.cluster_file import MOST_NODES, ClusterFile, load_cluster_file
from cellblock.cluster.definition.model import ClusterSpec, EngineName, Role, SlurmVariant
from cellblock.cluster.definition.names import JailRoot, check_name
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError, UsageError
from cellblock.project import Project
from cellblock.yaml_source import Location, nearest, read_yaml

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
    sites: tuple[Path, ...] = ()
    """Folders of a site's own definitions (`--images`), after those of the file."""


def up_options(request: UpRequest) -> dict[str, tuple[str, ...]]:
    """The options of `request` -> their values: what the same `up` is given again, besides its --name."""
    given: dict[str, tuple[object, ...]] = {
        "--cluster": () if request.file is None else (request.file.absolute(),),
        "--variant": () if request.variant is None else (request.variant,),
        "--workers": () if request.workers is None else (request.workers,),
        "--ssh-port": () if request.ssh_port is None else (request.ssh_port,),
        "--engine": () if request.engine == UpRequest.engine else (request.engine,),
        "--jail-root": () if request.jail_root is None else (request.jail_root,),
        "--jail": () if request.jail is None else (request.jail,),
        "--without": request.without,
        "--mirror": request.mirrors,
        "--images": tuple(each.absolute() for each in request.sites),
    }
    return {option: tuple(map(str, values)) for option, values in given.items() if values}


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
    if request.engine == "docker" and len(file.controllers) > 1:
        raise UsageError(
            "two controllers (controller.replicas) need addresses that stay, which Docker does not give",
            hint="use --engine podman, or controller.replicas: 1",
        )
    project = project_of(file)
    variant = project.variant(file.variant)
    _check_images(request, project, file)
    if file.auth == "slurm" and not SlurmFeatures(variant.slurm.release, "").auth_slurm:
        raise UsageError(
            f"{_place(request, ('auth',))}: variant {variant.name} has Slurm {variant.slurm.release}, which "
            "has no auth/slurm with slurm.jwks",
            hint="write `auth: munge`, or take a variant of Slurm 24.11 or later, such as debian13",
        )
    return ClusterSpec(
        file=file,
        variant=SlurmVariant(variant.name, variant.slurm.release, variant.slurm.plugin_dir),
        images={},
        volume=volume_path(file.name),
        engine=cast(EngineName, request.engine),
        options=up_options(request),
    )


def project_of(file: ClusterFile) -> Project:
    """The definitions of this tree, with those of the site that `file` names."""
    return Project(sites=tuple(map(Path, file.images)))


def _check_images(request: UpRequest, project: Project, file: ClusterFile) -> None:
    """Raise UsageError for an image that is not there, is no jail, or starts no node of its kind."""
    named: list[tuple[Location, str, str | None]] = [
        (("jail", "image"), "", file.jail.image),
        (("login", "image"), "login", file.login.image),
        *((("node_sets", at, "image"), "worker", one.image) for at, one in enumerate(file.node_sets)),
    ]
    for key, role, name in named:
        if name is None:
            continue
        if name not in project.images:
            raise UsageError(
                f"{_place(request, key)}: there is no image '{name}'; {nearest(name, project.images)}",
                hint=f"`build.py targets{project.options}` lists them; --images DIR adds those of a site",
            )
        if not role:
            project.refuse_other_than_jail(name, _place(request, key))
        image = project.images[name]
        # cellblock-init and the role: what else is in it may differ.
        start = project.images[role].fields.entrypoint[-2:] if role else []
        words = image.fields.entrypoint
        if start and start not in [words[at : at + 2] for at in range(len(words))]:
            raise UsageError(
                f"{_place(request, key)}: image {name} does not start a {role} node: its entrypoint, "
                f"[{', '.join(words)}], has no `{' '.join(start)}` ({image.source.path})",
                hint=f"make it `from: {role}`, with the entrypoint of {project.images[role].source.path}",
            )


def _place(request: UpRequest, key: Location) -> str:
    """FILE:LINE: KEY of a key of the cluster file; an option or a default has none."""
    name = ".".join(map(str, key))
    if request.jail is not None and key == ("jail", "image"):
        return "--jail"
    source = read_yaml(request.file) if request.file else None
    return f"{source.path}:{source.line(key)}: {name}" if source and key in source.lines else name


def images_of(file: ClusterFile) -> tuple[str, ...]:
    """The names of the images that the cluster of `file` runs."""
    images = (
        *(file.image_of("worker", each.nodes[0]) for each in file.node_sets),
        *(file.image_of(role) for role in roles_of(file) if role != "worker"),
    )
    return tuple(dict.fromkeys(images))


def roles_of(file: ClusterFile) -> tuple[Role, ...]:
    """The roles that the cluster of `file` runs."""
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
    return _with_options(load_cluster_file(request.file), request)


def kept_file(known: state.ClusterState, request: UpRequest) -> ClusterFile:
    """The file and options that the last `up` of a cluster was given, with those of `request` laid over.

    Of a cluster that an earlier Cellblock started, which did not note them: the file of `request`.
    """
    if not known.file:
        return cluster_file(request)
    try:
        file = ClusterFile.model_validate(known.file)
    except ValidationError as error:
        raise CellblockError(
            f"cluster {known.name}: the cluster file that it was made from is of another Cellblock: {error}",
            hint="name the file: `cluster diff FILE`, `cluster upgrade --cluster FILE`",
        ) from error
    return _with_options(file, request)


def _with_options(file: ClusterFile, request: UpRequest) -> ClusterFile:
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
    known = {Path(folder).resolve() for folder in file.images}
    images = (*file.images, *(str(each.absolute()) for each in request.sites if each.resolve() not in known))
    left_out: dict[str, None] = dict.fromkeys(request.without)
    return file.model_copy(update={"jail": jail, "login": login, "images": images, **left_out})
