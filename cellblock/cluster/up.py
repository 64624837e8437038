# SPDX-License-Identifier: Apache-2.0
"""From nothing to a job in the jail: build, assemble, start, prove."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

from cellblock.build import BuildRequest, BuildResult, build_images
from cellblock.cluster import state
from cellblock.cluster.cluster_file import MOST_NODES, ClusterFile, JailRoot, load_cluster_file
from cellblock.cluster.down import delete_unused
from cellblock.cluster.local import check_port, check_volume, refuse_other, start
from cellblock.cluster.model import ClusterSpec, ClusterStatus, EngineName, Proof, SlurmVariant
from cellblock.cluster.names import check_name, name_option
from cellblock.cluster.proof import prove
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events
from cellblock.jail.assemble import OtherSourceError, assemble
from cellblock.jail.volume.volume import Volume
from cellblock.machine.node_settings import refuse_without_user_namespaces, warn_of_node
from cellblock.project import Project

_GO_ON = "run the same `up` again: it goes on where this stopped"
_ROLES = ("worker", "login", "controller")
_ACCOUNTING = ("accounting", "database")


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


@dataclass(frozen=True)
class UpResult:
    """What `up` did. `phases` maps build, jail, cluster and proof to seconds."""

    build: BuildResult
    status: ClusterStatus
    proof: Proof
    phases: Mapping[str, float]


def volume_path(name: str) -> Path:
    """The jail volume of the local cluster `name`."""
    return state.folder(name) / "volume"


def bring_up(request: UpRequest, events: Events) -> UpResult:
    """Make the cluster of `request` run, doing only what is not done yet, and prove it by jobs.

    Raises UsageError for what cannot be; what build, assemble, start and prove raise otherwise.
    """
    if request.engine not in get_args(EngineName):
        raise UsageError(
            f"there is no engine '{request.engine}'", hint=f"use one of: {', '.join(get_args(EngineName))}"
        )
    file = cluster_file(request)
    if file.jail.root == "operator":
        events.warning(
            "--jail-root operator: whoever is root in the jail is an operator of Slurm and can take over "
            "the cluster "
            "(docs/decisions/jail-root-and-slurm.md)"
        )
    else:
        refuse_without_user_namespaces()
    warn_of_node(events)
    phases: dict[str, float] = {}
    variant = Project().variant(file.variant)
    spec = ClusterSpec(
        file=file,
        variant=SlurmVariant(variant.name, variant.slurm.release, variant.slurm.plugin_dir),
        images={},
        volume=volume_path(file.name),
        engine=cast(EngineName, request.engine),
    )
    # Before minutes are spent on images that this cluster cannot use.
    refuse_other(spec.name, variant.name, spec.engine, spec.volume)
    check_port(state.read(spec.name), file.login.ssh_port)
    if Volume(spec.volume).is_assembled():
        check_volume(spec)
    with _timed(phases, "build"):
        # The jail first: it takes longest, and the others fit beside it.
        roles = (*_ROLES, *(_ACCOUNTING if file.accounting else ()))
        images = (file.jail.image, *roles)
        built = build_images(
            BuildRequest(images, variant.name, request.mirrors, load=roles, go_on=_GO_ON), events
        )
    # Another checkout may give the name to its own build. Docker's ids are known when the images are there.
    ids = request.engine == "podman"
    spec = replace(
        spec, images={role: built.images[role].id if ids else built.images[role].reference for role in roles}
    )
    with _timed(phases, "jail"):
        jail = assemble_jail(built.images[file.jail.image].reference, spec, events)
    with _timed(phases, "cluster"):
        status = _start(spec, jail.is_new, events)
    with _timed(phases, "proof"):
        try:
            proof = prove(file.name, events)
        except CellblockError as error:
            if not jail.outdated:
                raise
            again = f"`build.py up{name_option(file.name)}` again"
            raise CellblockError(error.message, hint=f"{jail.outdated}; then {again}") from error
    return UpResult(built, status, proof, phases)


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
    return file.model_copy(update={"jail": jail, "login": login})


@dataclass(frozen=True)
class _Jail:
    """The jail of a cluster: whether this `up` made it, and what to do about one from an earlier build."""

    is_new: bool = False
    outdated: str = ""


def assemble_jail(jail: str, spec: ClusterSpec, events: Events) -> _Jail:
    """Fill the cluster's volume, or go on with the jail that is there: users have work in it."""
    try:
        return _Jail(is_new=assemble(jail, spec.volume, events).changed)
    except OtherSourceError:
        purge = f"build.py down --purge{name_option(spec.name)}"
        advice = (
            f"`build.py jail upgrade {jail} {spec.volume}` brings the jail up to date and keeps users' work, "
            f"`{purge}` deletes it with all that they wrote"
        )
        events.warning(
            f"the jail in {spec.volume} is from an earlier build of its image and is kept as it is: {advice}"
        )
        return _Jail(outdated=advice)
    except BaseException:
        # What the next `up` goes on with stays; other folders would stand for a cluster that never was.
        with suppress(CellblockError, OSError):
            volume = Volume(spec.volume)
            if not volume.is_assembled() and not volume.leftovers():
                delete_unused(spec.name, events)
        raise


def _start(spec: ClusterSpec, is_new_jail: bool, events: Events) -> ClusterStatus:
    """Start the cluster. When it does not start, a jail that nobody has used yet goes with it."""
    try:
        return start(spec, events)
    except Exception:
        if is_new_jail:
            # The error that is on its way says more than that something could not be deleted.
            with suppress(CellblockError, OSError):
                delete_unused(spec.name, events)
        raise


@contextmanager
def _timed(phases: dict[str, float], phase: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    phases[phase] = time.monotonic() - started
