# SPDX-License-Identifier: Apache-2.0
"""Builds images with Docker, one after the other, for `--engine docker`; skips those that exist by their key.

cellblock/engine/docker.py sends each Containerfile to dockerd.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cellblock.build.extra_archives import extra_archives
from cellblock.build.image_plan import recipe_keys
from cellblock.build.mirrors import Archive, archive
from cellblock.build.references import KEPT_BUILDS, key_prefix, key_reference, reference
from cellblock.build.rendering import RenderedImage, refuse_unavailable, render_images
from cellblock.build.request import BuildRequest, BuildResult
from cellblock.build.step_events import StepEvents
from cellblock.build.steps import recipe_of
from cellblock.engine import docker
from cellblock.engine.recipe import BuiltImage
from cellblock.errors import CellblockError
from cellblock.events import Events, State, SubjectState
from cellblock.overrides import overrides_text
from cellblock.process import Interrupted
from cellblock.project import Project
from cellblock.variants import Variant


@dataclass(frozen=True)
class _Planned:
    """An image, its recipe's names, and its key in one of them."""

    rendered: RenderedImage
    reference: str
    key_reference: str


def build_with_docker(request: BuildRequest, events: Events) -> BuildResult:
    """Build what `request` names, with all it needs, in dockerd.

    Raises DefinitionError and UsageError before anything is done; StepFailed; Interrupted on Ctrl-C.
    """
    started = time.monotonic()
    project = Project(request.definitions, request.sites)
    variant = project.variant(request.variant)
    order = project.in_order(request.images)
    refuse_unavailable(project.variants, variant, order)
    for sentence in overrides_text(project.images):
        events.info(sentence)
    source = archive(variant, request.mirrors)
    extras = extra_archives(variant, source, events, update=request.update)
    extras.ensure(events)
    source = extras.added_to(source)
    rendered = render_images(variant, order)
    planned = {
        name: _Planned(rendered[name], reference(name, variant), key_reference(name, variant, key))
        for name, key in recipe_keys(rendered, source, extras.key).items()
    }
    present = docker.images()
    missing = [name for name, image in planned.items() if image.key_reference not in present]
    if missing:
        _build_missing(planned, missing, source, request, events)
        present = docker.images()
    images: dict[str, BuiltImage] = {}
    for name, image in planned.items():
        built = present.get(image.key_reference)
        if built is None:
            raise CellblockError(
                f"image {image.key_reference} was removed while this build ran", hint="build again"
            )
        if not missing:
            events.emit(SubjectState(name, "cached", image.reference))
        named = present.get(image.reference)
        # Somebody gave the name to another image: the key decides what it stands for.
        if named is None or named.id != built.id:
            docker.tag(built, image.reference)
        images[name] = replace(built, reference=image.reference)
    if missing:
        _remove_old(list(planned), variant)
    return BuildResult(variant, images, tuple(missing), time.monotonic() - started, download_s=0.0)


def _remove_old(names: Sequence[str], variant: Variant) -> None:
    """Remove all but the newest builds of the images `names`, those that stand on others first."""
    present = docker.images()
    for name in reversed(names):
        prefix = key_prefix(name, variant)
        builds = [image for reference, image in present.items() if reference.startswith(prefix)]
        for old in sorted(builds, key=lambda image: image.created, reverse=True)[KEPT_BUILDS:]:
            docker.remove(old.reference)


def _build_missing(
    planned: Mapping[str, _Planned],
    missing: Sequence[str],
    source: Archive,
    request: BuildRequest,
    events: Events,
) -> None:
    """Build the images of `planned` that are `missing`, one after the other, parents first."""
    for name, image in planned.items():
        events.emit(SubjectState(name, *(("waiting",) if name in missing else ("cached", image.reference))))
    for number, name in enumerate(missing):
        try:
            _build_one(planned, name, source, request, events)
        except BaseException as error:
            for left in missing[number + 1 :]:
                events.emit(SubjectState(left, "stopped"))
            if isinstance(error, KeyboardInterrupt):
                again = request.command(planned[name].rendered.variant.name, *request.images)
                raise Interrupted(
                    "interrupted: what was being built was thrown away, finished images are kept",
                    hint=f"go on with: {again}",
                ) from error
            raise


def _build_one(
    planned: Mapping[str, _Planned], name: str, source: Archive, request: BuildRequest, events: Events
) -> None:
    image = planned[name]
    started = time.monotonic()
    events.emit(SubjectState(name, "running"))
    try:
        with tempfile.TemporaryDirectory(prefix="cellblock-") as staging:
            recipe = recipe_of(
                image.rendered,
                source,
                Path(staging),
                references=(image.reference, image.key_reference),
                # By key: the plain name may still be another branch's build.
                made_from={need: planned[need].key_reference for need in image.rendered.image.needs()},
                reproduce=request.command(image.rendered.variant.name, name),
            )
            docker.build(recipe, StepEvents(events, name), keep_failed=request.keep_failed)
    except BaseException as error:
        state: State = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
        events.emit(SubjectState(name, state, seconds=time.monotonic() - started))
        raise
    events.emit(SubjectState(name, "done", image.reference, time.monotonic() - started))
