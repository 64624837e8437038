# SPDX-License-Identifier: Apache-2.0
"""Builds images with Docker, each by its recipe: what has its key is left alone, the rest built at once."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from cellblock import paths
from cellblock.build.extra_archives import extra_archives
from cellblock.build.image_key import recipe_keys
from cellblock.build.mirrors import Archive, archive
from cellblock.build.references import KEPT_BUILDS, key_prefix, key_reference, reference
from cellblock.build.rendering import RenderedImage, render_images
from cellblock.build.request import BuildRequest, BuildResult
from cellblock.build.step_events import StepEvents
from cellblock.build.steps import recipe_of
from cellblock.engine import BuiltImage, Engine
from cellblock.engine.docker import DockerEngine
from cellblock.errors import CellblockError
from cellblock.events import Events, State, SubjectState
from cellblock.files.flock import locked
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

    Raises DefinitionError and UsageError before anything is done; StepFailed (the first) after the builds
    running beside it were ended; Interrupted on Ctrl-C.
    """
    started = time.monotonic()
    project = Project(request.definitions)
    variant = project.variant(request.variant)
    source = archive(variant, request.mirrors)
    extras = extra_archives(variant, source, events, update=request.update)
    extras.ensure(events)
    source = extras.added_to(source)
    rendered = render_images(variant, project.in_order(request.images))
    planned = {
        name: _Planned(rendered[name], reference(name, variant), key_reference(name, variant, key))
        for name, key in recipe_keys(rendered, source, extras.key).items()
    }
    engine = DockerEngine(keep_failed=request.keep_failed)
    present = engine.images()
    missing = [name for name, image in planned.items() if image.key_reference not in present]
    if missing:
        engine.sweep()
        _Run(planned, source, engine, events, request).build()
        present = engine.images()
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
            engine.tag(built, image.reference)
        images[name] = replace(built, reference=image.reference)
    if missing:
        _remove_old(engine, list(planned), variant)
    return BuildResult(variant, images, tuple(missing), time.monotonic() - started, download_s=0.0)


def _remove_old(engine: Engine, names: Sequence[str], variant: Variant) -> None:
    """Remove all but the newest builds of the images `names`, those that stand on others first."""
    present = engine.images()
    for name in reversed(names):
        prefix = key_prefix(name, variant)
        builds = [image for reference, image in present.items() if reference.startswith(prefix)]
        for old in sorted(builds, key=lambda image: image.created, reverse=True)[KEPT_BUILDS:]:
            engine.remove(old.reference)


class _Run:
    """One build of several images, each started when what it needs is there."""

    def __init__(
        self,
        planned: Mapping[str, _Planned],
        archive: Archive,
        engine: Engine,
        events: Events,
        request: BuildRequest,
    ) -> None:
        self._planned = planned
        self._archive = archive
        self._engine = engine
        self._events = events
        self._request = request
        self._stopped = threading.Event()

    def build(self) -> None:
        waiting = dict(self._planned)
        done: set[str] = set()
        running: dict[Future[None], str] = {}
        for name in waiting:
            self._events.emit(SubjectState(name, "waiting"))
        # One image a core: unpacking and configuring packages keeps a core busy.
        with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            try:
                while waiting or running:
                    for name, image in list(waiting.items()):
                        if set(image.rendered.image.needs()) <= done:
                            running[pool.submit(self._build_one, waiting.pop(name))] = name
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        done.add(running.pop(future))
                        future.result()
            except BaseException as error:
                self._stopped.set()
                self._engine.stop()
                for name in waiting:
                    self._events.emit(SubjectState(name, "stopped"))
                if isinstance(error, KeyboardInterrupt):
                    raise Interrupted(
                        "interrupted: what was being built was thrown away, finished images are kept",
                        hint=f"go on with: {self._again()}",
                    ) from error
                raise

    def _build_one(self, planned: _Planned) -> None:
        name, variant = planned.rendered.name, planned.rendered.variant.name
        started = time.monotonic()
        report = StepEvents(self._events, name)
        path = paths.cache() / "locks" / f"{variant}.{name}.lock"

        def waiting() -> None:
            self._events.info(f"{name}: another build works on it; waiting for it")

        try:
            with locked(path, waiting=waiting, stopped=self._stopped):
                if planned.key_reference in self._engine.images():
                    self._events.emit(SubjectState(name, "cached", planned.reference))
                    return
                self._events.emit(SubjectState(name, "running"))
                with tempfile.TemporaryDirectory(prefix="cellblock-") as staging:
                    recipe = recipe_of(
                        planned.rendered,
                        self._archive,
                        Path(staging),
                        references=(planned.reference, planned.key_reference),
                        # By key: the plain name may still be another branch's build.
                        made_from={
                            need: self._planned[need].key_reference for need in planned.rendered.image.needs()
                        },
                        reproduce=self._request.command(variant, name),
                    )
                    self._engine.build(recipe, report)
        except BaseException as error:
            state: State = "stopped" if isinstance(error, Interrupted) else "failed"
            self._events.emit(SubjectState(name, state, seconds=time.monotonic() - started))
            raise
        seconds = time.monotonic() - started
        self._events.emit(SubjectState(name, "done", planned.reference, seconds))

    def _again(self) -> str:
        """The command by which a person repeats all of this."""
        variant = next(iter(self._planned.values())).rendered.variant.name
        return self._request.command(variant, *self._request.images)
