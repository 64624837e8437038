# SPDX-License-Identifier: Apache-2.0
"""Builds the layers of all images in parallel, each layer once; layer_builder.py makes a single one.

A layer is looked up by its key, and made when it does not exist. Layers that most others depend on come
first. An image is then only a manifest over layers. When another build on this machine is making a layer,
this one waits for it.
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from cellblock import paths
from cellblock.attest.provenance import clean_commit
from cellblock.build.image_plan import ImagePlan, all_inputs
from cellblock.build.layer_builder import LayerMaker
from cellblock.build.layer_graph import Node
from cellblock.build.references import LABEL
from cellblock.build.step_events import StepEvents
from cellblock.build.working_root import FailedInRoot
from cellblock.cache_key import digest_of
from cellblock.engine.recipe import StepFailed
from cellblock.events import Events, State, SubjectState
from cellblock.files.flock import locked
from cellblock.oci.layer import Compression
from cellblock.oci.layout import Layout, StoredImage
from cellblock.oci.model import CONFIG, Configuration, Descriptor, Manifest, Platform, digest_of_bytes
from cellblock.process import Interrupted, ProgramFailed, Programs
from cellblock.store.record import ImageRecord, LayerRecord, record_of, write_record

if TYPE_CHECKING:
    from cellblock.oci.cache import RegistryCache


@dataclass(frozen=True)
class DirectBuild:
    """What a build works with; `reproduce` gives the command by which a person repeats an image."""

    maker: LayerMaker
    layout: Layout
    events: Events
    programs: Programs
    variant: str
    epoch: int
    compression: Compression
    lock_digest: str
    reproduce: Callable[[str], str]
    go_on: str
    """What to do after Ctrl-C."""
    stopped: threading.Event
    """Set when a build is ended: what waits and fetches beside it ends too."""
    cache: RegistryCache | None = None
    remember: bool = True
    """Whether the images' records become the newest."""
    sites: tuple[str, ...] = ()
    """The folders of a site's own definitions."""
    shaped_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Image -> those of them that declare it, or what it needs."""


@dataclass(frozen=True)
class FinishedImages:
    """The images by name; `built` are the new ones: the others were known, or are of layers that were."""

    images: Mapping[str, StoredImage]
    built: tuple[str, ...]


def build_layers(build: DirectBuild, plans: Sequence[ImagePlan]) -> FinishedImages:
    """Make the images of `plans`, and what they need.

    Raises StepFailed (the first) after what ran beside it was ended; Interrupted on Ctrl-C.
    """
    with build.layout.writing():
        return _Run(build, plans).run()


class _Run:
    def __init__(self, build: DirectBuild, plans: Sequence[ImagePlan]) -> None:
        self._build = build
        self._plans = plans
        self._nodes: dict[str, Node] = {}
        self._records: dict[str, LayerRecord] = {}
        self._done: set[str] = set()
        self._ended: set[str] = set()
        self._stopped = build.stopped
        self._lock = threading.Lock()
        self._started: dict[str, float] = {}
        self._steps: dict[str, dict[str, float]] = {}
        self._images: dict[str, StoredImage] = {}
        self._made: set[str] = set()
        self._built: list[str] = []
        self._before = build.layout.references()
        definitions = {plan.rendered.image.folder.parent for plan in plans}
        self._commit = clean_commit(definitions.pop()) if len(definitions) == 1 else None

    def run(self) -> FinishedImages:
        for plan in self._plans:
            self._build.events.emit(SubjectState(plan.name, "waiting"))
        for plan in self._plans:
            for node in plan.top.chain():
                self._want(node)
        self._done = set(self._records)
        waiting = {node.id: node for node in self._nodes.values() if node.id not in self._done}
        self._finish_images()
        running: dict[Future[LayerRecord], Node] = {}
        # Done when a layer's tree is there: others are made on it while its blob is written.
        trees: dict[Future[None], Node] = {}
        standing = set(self._done)
        cores = os.cpu_count() or 1
        work = self._work_after()
        # One layer a core: unpacking and configuring packages keeps a core busy.
        with ThreadPoolExecutor(max_workers=2 * cores) as pool:
            try:
                while waiting or running:
                    ready = [
                        node
                        for node in waiting.values()
                        # All below it, not only the next: a killed build may have stored a layer before one
                        # below it.
                        if all(each.id in standing for need in node.waits_for() for each in need.chain())
                    ]
                    for node in sorted(ready, key=lambda each: -work[each.id])[: cores - len(trees)]:
                        del waiting[node.id]
                        tree: Future[None] = Future()
                        trees[tree] = node
                        running[pool.submit(self._make, node, tree)] = node
                    pending: list[Future[Any]] = [*running, *trees]
                    finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                    for each in [future for future in trees if future in finished]:
                        standing.add(trees.pop(each).id)
                    for done in [future for future in running if future in finished]:
                        node = running.pop(done)
                        self._records[node.id] = done.result()
                        self._done.add(node.id)
                    self._finish_images()
            except BaseException as error:
                self._stopped.set()
                self._build.programs.stop()
                for plan in self._plans:
                    if plan.name not in self._images and plan.name not in self._ended:
                        self._build.events.emit(SubjectState(plan.name, "stopped"))
                if isinstance(error, KeyboardInterrupt):
                    kept = (
                        "finished layers are kept" if self._build.remember else "what was built before stays"
                    )
                    raise Interrupted(
                        f"interrupted: what was being made was thrown away, {kept}", hint=self._build.go_on
                    ) from error
                raise
        return FinishedImages(self._images, tuple(self._built))

    def _want(self, node: Node) -> None:
        """Find a layer; one that must be made wants all that it waits for."""
        if node.id in self._nodes:
            return
        self._nodes[node.id] = node
        record = self._build.maker.find(node) or self._pull(node)
        if record:
            self._records[node.id] = record
            return
        for needed in node.waits_for():
            for each in needed.chain():
                self._want(each)

    def _pull(self, node: Node) -> LayerRecord | None:
        """The layer from the shared cache, if somebody made it."""
        entry = self._build.cache.pull_layer(node.id) if self._build.cache else None
        if entry is None:
            return None
        record = record_of(entry.record)
        if record is None or not self._build.layout.has(record.digest):
            return None
        self._build.events.info(f"{node.subject}: '{node.title}' comes from the shared cache")
        self._build.maker.keep(node, record)
        return record

    def _push(self, node: Node, record: LayerRecord) -> None:
        """Give a layer to others."""
        if self._build.cache:
            media_type = self._build.compression.media_type
            layer = Descriptor(media_type, record.digest, record.size)
            self._build.cache.push_layer(node.id, layer, asdict(record))

    def _work_after(self) -> dict[str, int]:
        """Layer -> bytes to install on the longest way from it to an image: what to begin with."""
        after: dict[str, int] = {}

        def measure(node: Node) -> int:
            if node.id not in after:
                users = [each for each in self._nodes.values() if node.id in (n.id for n in each.waits_for())]
                own = sum(package.installed_size for package in node.packages) or (8 << 20)
                after[node.id] = own + max((measure(each) for each in users), default=0)
            return after[node.id]

        for node in self._nodes.values():
            measure(node)
        return after

    def _make(self, node: Node, tree: Future[None]) -> LayerRecord:
        report = StepEvents(self._build.events, node.subject)
        started = time.monotonic()
        events = self._build.events
        with self._lock:
            self._started.setdefault(node.subject, started)
        try:
            path = paths.cache() / "locks" / f"layer-{node.id}"

            def waiting() -> None:
                events.info(f"{node.subject}: another build makes '{node.title}'; waiting for it")

            with locked(path, waiting=waiting, stopped=self._stopped):
                record = self._build.maker.find(node)
                if record is None:
                    events.emit(SubjectState(node.subject, "running", node.title))
                    record = self._build.maker.make(node, report, lambda: tree.set_result(None))
                    with self._lock:
                        self._made.add(node.id)
                    self._push(node, record)
                else:
                    tree.set_result(None)
        except ProgramFailed as error:
            self._say_failed(node, started)
            raise StepFailed.of(
                node.subject,
                report.title,
                error.finished,
                self._build.reproduce(node.images[0]),
                where=error.where if isinstance(error, FailedInRoot) else "",
                hint=error.hint,
            ) from error
        except BaseException as error:
            state: State = "stopped" if isinstance(error, Interrupted) else "failed"
            self._say_failed(node, started, state)
            raise
        with self._lock:
            self._steps.setdefault(node.subject, {}).update(
                {f"{node.title}: {step}": seconds for step, seconds in report.seconds.items()}
            )
        if node.kind == "shared":
            events.emit(SubjectState(node.subject, "done", node.title, time.monotonic() - started))
        return record

    def _say_failed(self, node: Node, started: float, state: State = "failed") -> None:
        self._ended.add(node.subject)
        self._build.events.emit(SubjectState(node.subject, state, seconds=time.monotonic() - started))

    # -- images --------------------------------------------------------------------------------

    def _finish_images(self) -> None:
        """Give their names to the images whose layers are all there."""
        for plan in self._plans:
            # A layer may be stored before one below it: only its tree had to be there.
            if plan.name in self._images or any(node.id not in self._done for node in plan.top.chain()):
                continue
            layers = [self._records[node.id] for node in plan.top.chain()]
            image = self._store(plan, layers)
            self._images[plan.name] = image
            made = [node for node in plan.top.chain() if node.subject in self._started]
            seconds = 0.0
            if plan.name in self._started:
                seconds = time.monotonic() - self._started[plan.name]
            self._remember(
                ImageRecord(
                    image=plan.name,
                    variant=self._build.variant,
                    reference=plan.reference,
                    digest=image.digest,
                    key=plan.key.digest,
                    inputs=all_inputs(plan),
                    layers=tuple(layers),
                    lock=self._build.lock_digest,
                    epoch=self._build.epoch,
                    seconds=round(seconds, 3),
                    steps={
                        step: round(each, 3)
                        for node in made
                        for step, each in self._steps.get(node.subject, {}).items()
                    },
                    commit=self._commit,
                    sites=self._build.sites,
                    shaped_by=self._build.shaped_by.get(plan.name, ()),
                )
            )
            is_made = any(node.id in self._made for node in plan.top.chain())
            state: State = "cached"
            if is_made or self._is_changed(plan, image):
                self._built.append(plan.name)
                state = "done"
            self._build.events.emit(SubjectState(plan.name, state, plan.reference, seconds))

    def _is_changed(self, plan: ImagePlan, image: StoredImage) -> bool:
        """Whether the name had another image, and the store not yet this one: a changed environment, say."""
        named = self._before.get(plan.reference)
        return named is not None and image.digest not in {known.digest for known in self._before.values()}

    def _remember(self, record: ImageRecord) -> None:
        if self._build.remember:
            write_record(record)

    def _store(self, plan: ImagePlan, layers: Sequence[LayerRecord]) -> StoredImage:
        """Write manifest and configuration: the same layers and settings give the same bytes."""
        created = datetime.datetime.fromtimestamp(self._build.epoch, datetime.timezone.utc)
        stamp = created.strftime("%Y-%m-%dT%H:%M:%SZ")
        diff_ids = tuple(layer.diff_id for layer in layers)
        # What the jail remembers it was made from: equal images have equal keys wherever they were built.
        labels = {**plan.settings["Labels"], f"{LABEL}.key": digest_of([diff_ids, plan.settings])}
        configuration = Configuration(
            Platform("linux", plan.rendered.variant.arch.debian),
            diff_ids,
            {**plan.settings, "Labels": labels},
            stamp,
            tuple({"created": stamp, "created_by": f"cellblock: {layer.title}"} for layer in layers),
        )
        data = configuration.to_bytes()
        media_type = self._build.compression.media_type
        manifest = Manifest(
            Descriptor(CONFIG, digest_of_bytes(data), len(data)),
            tuple(Descriptor(media_type, layer.digest, layer.size) for layer in layers),
        )
        return self._build.layout.add(manifest, configuration, (plan.reference, plan.key_reference))
