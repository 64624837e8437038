# SPDX-License-Identifier: Apache-2.0
"""Lists what `up` would change of a running cluster, and changes nothing (`build.py cluster diff`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cellblock.build.prepare import prepare
from cellblock.build.request import BuildRequest
from cellblock.cluster.changing.changes import Changes, compare
from cellblock.cluster.changing.cluster_plan import plan_cluster
from cellblock.cluster.configuration import config_files
from cellblock.cluster.definition.model import ClusterSpec
from cellblock.cluster.definition.names import DEFAULT_NAME
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.api import connect
from cellblock.cluster.facts import state
from cellblock.cluster.local import refuse_other
from cellblock.cluster.up_request import UpRequest, cluster_file, cluster_spec, images_of, kept_file
from cellblock.engine.storage import image_id
from cellblock.events import Events
from cellblock.store.image_store import image_store

# Stands for the id of an image that `up` would build first.
_NEW = "new"


def cluster_diff(request: UpRequest, events: Events) -> tuple[str, Changes]:
    """The cluster that `up` with `request` would change, and the changes; empty when there is nothing to do.

    Without a file: what the same `up` as the last would change.

    Raises DefinitionError and UsageError for what cannot be; CellblockError when no such cluster runs, or
    when it is of another variant.
    """
    given = cluster_file(request) if request.file else None
    known = state.require(given.name if given else request.name or DEFAULT_NAME)
    variant = request.variant or (given.variant if given else None) or known.variant
    request = replace(request, name=known.name, engine=known.engine, variant=variant)
    file = cluster_file(request) if request.file else kept_file(known, request)
    spec = cluster_spec(request, file)
    refuse_other(spec.name, spec.variant.name, spec.engine, spec.volume)
    ids = _image_ids(spec, images_of(file), request.mirrors or known.mirrors, known, events)
    spec = ClusterSpec(spec.file, spec.variant, ids, spec.volume, spec.engine)
    folder = state.folder(spec.name)
    with connect(spec.engine) as client:
        alive = containers.alive(client, spec.name)
    target = plan_cluster(spec, folder, ids, known).target
    old = config_files.read(folder / "config")
    return spec.name, compare(
        known.containers, target.records, alive, old, target.texts, spec.variant.release
    )


def _image_ids(
    spec: ClusterSpec,
    names: Sequence[str],
    mirrors: tuple[str, ...],
    known: state.ClusterState,
    events: Events,
) -> dict[str, str]:
    """Image -> the id of the one that `up` would run, as the cluster's state names images.

    An engine that is given copies has ids of its own: what is built counts as what runs there.
    """
    request = BuildRequest(tuple(names), spec.variant.name, mirrors, sites=tuple(map(Path, spec.file.images)))
    prepared = prepare(request, events)
    store = image_store()
    stored = store.references()
    runs = {
        spec.file.image_of(str(one["role"]), host): str(one["image"])
        for host, one in known.containers.items()
    }
    ids: dict[str, str] = {}
    for name in names:
        descriptor = stored.get(prepared.plans[name].key_reference)
        if descriptor is None:
            ids[name] = _NEW
        elif spec.engine == "docker":
            ids[name] = runs.get(name, _NEW)
        else:
            ids[name] = f"sha256:{image_id(store.stored(descriptor))}"
    return ids
