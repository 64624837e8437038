"""Builds with an engine that carries out recipes: what has its key is left alone, the rest built at once."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from cellblock import paths
from cellblock.build.plan import PlannedImage, Planner, key_prefix
from cellblock.build.request import BuildRequest, BuildResult
from cellblock.engine import BuiltImage, Engine
from cellblock.engine.docker import DockerEngine
from cellblock.errors import CellblockError
from cellblock.events import Events, Output, State, SubjectState
from cellblock.process import Interrupted
from cellblock.variants import Variant


def build_recipes(
    request: BuildRequest,
    variant: Variant,
    planner: Planner,
    planned: Mapping[str, PlannedImage],
    events: Events,
) -> BuildResult:
    """Build `planned` with an engine that carries out recipes.

    Raises StepFailed (the first) after the builds running beside it were ended; Interrupted on Ctrl-C.
    """
    started = time.monotonic()
    engine = DockerEngine(keep_failed=request.keep_failed)
    present = engine.images()
    missing = [image for image in planned.values() if image.key_reference not in present]
    download_s = 0.0
    if missing:
        engine.sweep()
        run = _Run(planner, planned, engine, events, request)
        run.build()
        download_s = run.download_s
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
        _remove_old(engine, [image.image.name for image in planned.values()], variant)
    names = tuple(image.image.name for image in missing)
    return BuildResult(variant, images, names, time.monotonic() - started, download_s)


# Earlier builds of an image that are kept beside the newest: going back and forth between two states
# of a tree (branches, say) builds nothing, and a disk does not fill up with the others.
_KEEP = 3


def _remove_old(engine: Engine, names: Sequence[str], variant: Variant) -> None:
    """Remove all but the newest builds of the images `names`, those that stand on others first."""
    present = engine.images()
    for name in reversed(names):
        prefix = key_prefix(name, variant)
        builds = [image for reference, image in present.items() if reference.startswith(prefix)]
        for old in sorted(builds, key=lambda image: image.created, reverse=True)[_KEEP:]:
            engine.remove(old.reference)


class _Run:
    """One build of several images, each started when what it needs is there."""

    def __init__(
        self,
        planner: Planner,
        planned: Mapping[str, PlannedImage],
        engine: Engine,
        events: Events,
        request: BuildRequest,
    ) -> None:
        self._planner = planner
        self._planned = planned
        self._engine = engine
        self._events = events
        self._request = request
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self.download_s = 0.0

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
                        if set(image.image.needs()) <= done:
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
                        hint=f"go on with: {self._reproduce(*self._request.images)}",
                    ) from error
                raise

    def _build_one(self, planned: PlannedImage) -> None:
        name = planned.image.name
        started = time.monotonic()
        report = _Report(self._events, name)
        try:
            with _one_builder(planned, self._events, self._stopped):
                if planned.key_reference in self._engine.images():
                    self._events.emit(SubjectState(name, "cached", planned.reference))
                    return
                self._events.emit(SubjectState(name, "running"))
                with tempfile.TemporaryDirectory(prefix="cellblock-") as staging:
                    recipe = self._planner.recipe(planned, Path(staging), self._reproduce(name))
                    self._engine.build(recipe, report)
        except BaseException as error:
            state: State = "stopped" if isinstance(error, Interrupted) else "failed"
            self._events.emit(SubjectState(name, state, seconds=time.monotonic() - started))
            raise
        with self._lock:
            self.download_s += report.download_s
        seconds = time.monotonic() - started
        self._events.emit(SubjectState(name, "done", planned.reference, seconds, report.download_s))

    def _reproduce(self, *images: str) -> str:
        return self._request.command(self._planner.variant.name, *images)


class _Report:
    """Passes an engine's steps and lines on as events of one image."""

    def __init__(self, events: Events, image: str) -> None:
        self._events = events
        self._image = image
        self._step = ""
        self.download_s = 0.0

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        self._step = title
        with self._events.step(self._image, title):
            yield

    def line(self, text: str) -> None:
        self._events.emit(Output(self._image, self._step, text))

    def downloaded(self, seconds: float) -> None:
        self.download_s += seconds


_POLL_S = 0.2


def _locked(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _one_builder(planned: PlannedImage, events: Events, stopped: threading.Event) -> Iterator[None]:
    """Hold the lock of an image of a variant: a second build waits and then finds the result."""
    folder = paths.cache() / "locks"
    path = folder / f"{planned.variant.name}.{planned.image.name}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        raise CellblockError(
            f"{path}: cannot be opened: {error.strerror}",
            hint="make room or set CELLBLOCK_CACHE to a folder that can be written",
        ) from error
    with lock:
        if not _locked(lock):
            events.info(f"{planned.image.name}: another build works on it; waiting for it")
            # Not blocking in flock(2): Ctrl-C would have to wait for the other build.
            while not _locked(lock):
                if stopped.wait(_POLL_S):
                    raise Interrupted(f"image {planned.image.name}: stopped while waiting") from None
        yield
