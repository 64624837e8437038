# SPDX-License-Identifier: Apache-2.0
"""Builds the images, assembles the jail, starts the cluster, and runs its first jobs (`build.py up`).

local.py starts the containers; up_request.py reads the options.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cellblock.build import BuildRequest, BuildResult, build_images
from cellblock.cluster.changing.release_check import refuse_release
from cellblock.cluster.definition.cluster_file import ClusterFile
from cellblock.cluster.definition.model import ClusterSpec, ClusterStatus, Proof
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.down import delete_unused
from cellblock.cluster.engine.api import connect
from cellblock.cluster.facts import state
from cellblock.cluster.local import check_ports, check_volume, refuse_other, start
from cellblock.cluster.proof import prove_if_free
from cellblock.cluster.up_request import UpRequest, cluster_file, cluster_spec, images_of, patience_s
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import OtherSourceError, assemble
from cellblock.jail.volume.volume import Volume
from cellblock.machine.node_settings import refuse_without_user_namespaces, warn_of_node

_GO_ON = "run the same `up` again: it goes on where this stopped"


@dataclass(frozen=True)
class UpResult:
    """What `up` did. `phases` maps build, jail, cluster and proof to seconds.

    There is no proof of a cluster whose nodes are all busy or drained.
    """

    build: BuildResult
    status: ClusterStatus
    proof: Proof | None
    phases: Mapping[str, float]


def bring_up(request: UpRequest, events: Events) -> UpResult:
    """Make the cluster of `request` run, doing only what is not done yet, and prove it by jobs.

    While another `up` of the cluster is at work, it waits for that, and then does what is left.

    Raises UsageError for what cannot be; what build, assemble, start and prove raise otherwise.
    """
    file = cluster_file(request)
    patience = patience_s(request)
    if file.jail.root == "operator":
        events.warning(
            "--jail-root operator: whoever is root in the jail is an operator of Slurm and can take over "
            "the cluster "
            "(docs/decisions/jail-root-and-slurm.md)"
        )
    else:
        refuse_without_user_namespaces()
    spec = cluster_spec(request, file)
    # Before minutes are spent on images that nothing can run, or that this cluster cannot use.
    with connect(spec.engine):
        pass
    with state.exclusive_up(spec.name, events):
        return _bring_up(request, file, spec, patience, events)


def _bring_up(
    request: UpRequest, file: ClusterFile, spec: ClusterSpec, patience: float, events: Events
) -> UpResult:
    phases: dict[str, float] = {}
    refuse_release(spec.name, spec.variant.release)
    refuse_other(spec.name, spec.variant.name, spec.engine, spec.volume)
    check_ports(state.read(spec.name), file)
    if Volume(spec.volume).is_assembled():
        check_volume(spec)
    warn_of_node(events)
    with _timed(phases, "build"):
        # The jail first: it takes longest, and the others fit beside it.
        run = images_of(file)
        images = tuple(dict.fromkeys((file.jail.image, *run)))
        built = build_images(
            BuildRequest(
                images,
                spec.variant.name,
                request.mirrors,
                load=run,
                go_on=_GO_ON,
                sites=tuple(map(Path, file.images)),
            ),
            events,
        )
    # Another checkout may give the name to its own build. Docker's ids are known when the images are there.
    ids = request.engine == "podman"
    spec = replace(
        spec, images={name: built.images[name].id if ids else built.images[name].reference for name in run}
    )
    with _timed(phases, "jail"):
        jail = assemble_jail(built.images[file.jail.image].reference, spec, events)
    with _timed(phases, "cluster"):
        status = _start(spec, jail.is_new, patience, events)
    with _timed(phases, "proof"):
        try:
            proof = prove_if_free(file.name, events)
        except CellblockError as error:
            if not jail.outdated:
                raise
            again = f"`build.py up{name_option(file.name)}` again"
            raise CellblockError(error.message, hint=f"{jail.outdated}; then {again}") from error
    return UpResult(built, status, proof, phases)


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


def _start(spec: ClusterSpec, is_new_jail: bool, patience: float, events: Events) -> ClusterStatus:
    """Start the cluster. When it does not start, a jail that nobody has used yet goes with it."""
    try:
        return start(spec, events, patience_s=patience)
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
