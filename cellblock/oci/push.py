# SPDX-License-Identifier: Apache-2.0
"""Pushes images of a layout to a registry: the blobs that it lacks, then manifests, then tags.

First all blobs of all images go, each once: a blob that several repositories need is sent to one of them and
mounted into the others. Then the manifests by digest, with what is attached to them, and at the end the tags.
So a tag never names an incomplete image, and a push that failed goes on where it stopped. release/publish.py
decides what is sent; registry/upload.py sends a single blob.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from cellblock.errors import CellblockError
from cellblock.events import Events, Progress, SubjectState
from cellblock.oci.cosign import cosign_tag
from cellblock.oci.layout import Layout
from cellblock.oci.model import (
    CONFIG,
    DOCKER_CONFIG,
    DOCKER_LIST,
    INDEX,
    Configuration,
    Descriptor,
    Index,
    Manifest,
    Platform,
)
from cellblock.oci.registry.client import Registry, Repository, fallback_tag
from cellblock.oci.registry.errors import CredentialsMissing, Denied, NotInRegistry
from cellblock.oci.registry.transport import Stopped
from cellblock.oci.registry.upload import Outcome, Upload
from cellblock.process import Interrupted

# Progress of a blob is told in steps of this many bytes: an event costs all threads a lock.
_TELL_EVERY = 1 << 20


@dataclass(frozen=True)
class Item:
    """Something to push: `name` is for people, `root` an image or an index of the layout."""

    name: str
    root: Descriptor
    repository: str
    """Path in the registry."""
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Pushed:
    """What an item became. Bytes of blobs by what happened to them; `seconds` are the whole push's."""

    item: Item
    size: int
    """Bytes that somebody who has nothing pulls, of all platforms."""
    platforms: tuple[Platform, ...]
    referrers: int
    """How many artifacts are attached."""
    sent: int = 0
    mounted: int = 0
    present: int = 0
    moved: tuple[str, ...] = ()
    """Tags that named something else, or nothing, before."""


def push(
    layout: Layout,
    registry: Registry,
    items: Sequence[Item],
    events: Events,
    *,
    jobs: int = 4,
    referrers: bool = True,
    mount_from: Sequence[str] = (),
) -> list[Pushed]:
    """Push `items`, at most `jobs` requests at a time.

    `mount_from` are more repositories of this registry to take blobs from. `registry` must not be used
    after a failure. Raises RegistryError, MalformedImage, Interrupted.
    """
    return _Push(layout, registry, items, events, jobs, referrers, mount_from).run()


@dataclass
class _Wanted:
    """A manifest of an item: its bytes come from the layout."""

    descriptor: Descriptor
    data: bytes
    subject: Descriptor | None
    blobs: tuple[Descriptor, ...]


@dataclass
class _State:
    """An item while it is pushed."""

    item: Item
    repository: Repository
    manifests: list[_Wanted]
    """As a registry takes them: what an index names before it, subjects before what is attached."""
    referrers: int
    platforms: tuple[Platform, ...]
    lacking: list[_Wanted] = field(default_factory=list)
    bytes: dict[Outcome, int] = field(default_factory=lambda: {"sent": 0, "mounted": 0, "present": 0})
    total: int = 0
    done: dict[str, int] = field(default_factory=dict)
    """Bytes that are there of each blob that this item brings."""
    moved: tuple[str, ...] = ()
    started: float = 0.0
    finished: bool = False


class _Push:
    """One push of several items."""

    def __init__(
        self,
        layout: Layout,
        registry: Registry,
        items: Sequence[Item],
        events: Events,
        jobs: int,
        referrers: bool,
        mount_from: Sequence[str],
    ) -> None:
        self._layout = layout
        self._registry = registry
        self._events = events
        self._jobs = jobs
        self._mount_from = tuple(mount_from)
        self._states = [self._planned(item, referrers) for item in items]
        self._lock = threading.Lock()
        self._started = time.monotonic()

    def run(self) -> list[Pushed]:
        for state in self._states:
            self._events.emit(SubjectState(state.item.name, "waiting"))
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                self._all(pool, [pool.submit(self._look, state) for state in self._states])
                self._all(pool, self._blob_tasks(pool))
                self._all(pool, [pool.submit(self._put_manifests, state) for state in self._states])
                # No tag moves before every image is there: a deployment may read several of them.
                self._all(pool, [pool.submit(self._put_tags, state) for state in self._states])
            except BaseException as error:
                self._registry.transport.stopped.set()
                pool.shutdown(wait=True, cancel_futures=True)
                for state in self._states:
                    if not state.finished:
                        self._events.emit(SubjectState(state.item.name, "stopped"))
                if isinstance(error, KeyboardInterrupt):
                    raise Interrupted(
                        "interrupted: no tag was moved that names something incomplete",
                        hint="run this again: what the registry has is not sent again",
                    ) from error
                raise
        return [self._result(state) for state in self._states]

    # -- planning ------------------------------------------------------------------------------

    def _planned(self, item: Item, referrers: bool) -> _State:
        manifests: dict[str, _Wanted] = {}
        platforms: list[Platform] = []
        for descriptor in self._below(item.root):
            wanted = manifests[descriptor.digest] = self._read(descriptor)
            platforms += self._platform(wanted)
        subjects, attached = list(manifests), 0
        while referrers and subjects:
            for artifact in self._layout.referrers(subjects.pop(0)):
                if artifact.digest not in manifests:
                    manifests[artifact.digest] = self._read(artifact)
                    subjects.append(artifact.digest)  # a signature of an SBOM, say
                    attached += 1
        repository = self._registry.repository(item.repository)
        return _State(item, repository, list(manifests.values()), attached, tuple(dict.fromkeys(platforms)))

    def _below(self, root: Descriptor) -> Iterator[Descriptor]:
        """Manifests that `root` leads to, itself last."""
        if root.media_type in (INDEX, DOCKER_LIST):
            for child in Index.of_bytes(self._layout.read(root.digest)).manifests:
                yield from self._below(child)
        yield root

    def _platform(self, wanted: _Wanted) -> list[Platform]:
        """What an image runs on; nothing for an index, and for what is no image."""
        if not wanted.blobs or wanted.blobs[0].media_type not in (CONFIG, DOCKER_CONFIG):
            return []
        return [Configuration.of_bytes(self._layout.read(wanted.blobs[0].digest)).platform]

    def _read(self, descriptor: Descriptor) -> _Wanted:
        data = self._layout.read(descriptor.digest)
        if descriptor.media_type in (INDEX, DOCKER_LIST):
            return _Wanted(descriptor, data, Index.of_bytes(data).subject, ())
        manifest = Manifest.of_bytes(data)
        blobs = {blob.digest: blob for blob in (manifest.config, *manifest.layers)}
        for digest in blobs:
            if not self._layout.has(digest):
                raise CellblockError(
                    f"{self._layout.folder}: blob {digest} of image {descriptor.digest} is not there",
                    hint="build or copy the image again",
                )
        return _Wanted(descriptor, data, manifest.subject, tuple(blobs.values()))

    # -- phases --------------------------------------------------------------------------------

    def _look(self, state: _State) -> None:
        """Find which manifests the repository lacks; where it has one, it has its blobs."""
        state.started = time.monotonic()
        self._events.emit(SubjectState(state.item.name, "running"))
        for wanted in state.manifests:
            if state.repository.descriptor(wanted.descriptor.digest) is None:
                state.lacking.append(wanted)
            else:
                state.bytes["present"] += sum(blob.size for blob in wanted.blobs)

    def _blob_tasks(self, pool: ThreadPoolExecutor) -> list[Future[None]]:
        wanting: dict[str, list[_State]] = {}
        blobs: dict[str, Descriptor] = {}
        for state in self._states:
            for blob in {blob.digest: blob for each in state.lacking for blob in each.blobs}.values():
                wanting.setdefault(blob.digest, []).append(state)
                blobs[blob.digest] = blob
        # The first that wants a blob shows its progress. Large ones first: none is left alone at the end.
        for digest, states in wanting.items():
            states[0].total += blobs[digest].size
        ordered = sorted(blobs.values(), key=lambda blob: -blob.size)
        return [pool.submit(self._bring, blob, wanting[blob.digest]) for blob in ordered]

    def _bring(self, blob: Descriptor, states: Sequence[_State]) -> None:
        """A blob into all repositories that want it."""
        # Several items may go to one repository, and a repository may have the blob already.
        repositories = {state.item.repository: state for state in reversed(states)}
        having = [
            path
            for path, state in repositories.items()
            if state.repository.blob_size(blob.digest) is not None
        ]
        sources = having or self._elsewhere(blob)
        for path, state in repositories.items():
            if path in having:
                outcome: Outcome = "present"
            else:
                outcome = self._upload(blob, state, sources, states[0])
                sources = [path]
            with self._lock:
                state.bytes[outcome] += blob.size
        self._progress(states[0], blob, blob.size)

    def _upload(self, blob: Descriptor, state: _State, sources: Sequence[str], shown: _State) -> Outcome:
        def progress(done: int) -> None:
            self._progress(shown, blob, done)

        path = self._layout.blob(blob.digest)
        return Upload(state.repository, blob, path, mount_from=sources[:1], progress=progress).run()

    def _elsewhere(self, blob: Descriptor) -> list[str]:
        """The first repository to mount from that has the blob; one that may not be read has none."""
        for path in self._mount_from:
            try:
                if self._registry.repository(path).blob_size(blob.digest) is not None:
                    return [path]
            except (CredentialsMissing, Denied):
                continue
        return []

    def _progress(self, state: _State, blob: Descriptor, done: int) -> None:
        with self._lock:
            before = state.done.get(blob.digest, 0)
            if done < blob.size and abs(done - before) < _TELL_EVERY:
                return
            state.done[blob.digest] = done
            together = sum(state.done.values())
        self._events.emit(Progress(state.item.name, together, state.total))

    def _put_manifests(self, state: _State) -> None:
        known: set[str] = set()
        for wanted in state.lacking:
            answer = state.repository.put_manifest(wanted.data, wanted.descriptor.media_type)
            # A registry with the referrers API says so; for others the index of referrers is ours to keep.
            if wanted.subject and answer.headers.get("OCI-Subject") == wanted.subject.digest:
                known.add(wanted.descriptor.digest)
        attached: dict[str, list[Descriptor]] = {}
        for wanted in state.manifests:
            if wanted.subject and wanted.descriptor.digest not in known:
                attached.setdefault(wanted.subject.digest, []).append(_as_referrer(wanted))
        for subject, artifacts in attached.items():
            # Also what was there already: a push may have ended between an artifact and its index.
            listed = {each.digest for each in state.repository.referrers(subject)}
            if not listed.issuperset(each.digest for each in artifacts):
                _attach_by_tag(state.repository, subject, artifacts)

    def _put_tags(self, state: _State) -> None:
        root, repository = state.item.root, state.repository
        # Before the image's own: whoever takes a signed image by its tag can check it.
        for wanted in state.manifests:
            tag = cosign_tag(wanted.descriptor, wanted.subject.digest) if wanted.subject else None
            found = repository.descriptor(tag) if tag else None
            if tag and (found is None or found.digest != wanted.descriptor.digest):
                repository.put_manifest(wanted.data, wanted.descriptor.media_type, tag)
        moved = []
        for tag in state.item.tags:
            found = repository.descriptor(tag)
            if found is None or found.digest != root.digest:
                repository.put_manifest(self._layout.read(root.digest), root.media_type, tag)
                moved.append(tag)
        state.moved, state.finished = tuple(moved), True
        seconds = time.monotonic() - state.started
        if state.lacking or moved:
            self._events.emit(SubjectState(state.item.name, "done", _outcome(state), seconds))
        else:
            self._events.emit(SubjectState(state.item.name, "cached", "all of it was there"))

    # -- inside --------------------------------------------------------------------------------

    def _all(self, pool: ThreadPoolExecutor, futures: Sequence[Future[None]]) -> None:
        """Wait for all; when one fails, end the others and raise what it raised."""
        _, running = wait(futures, return_when=FIRST_EXCEPTION)
        if running:
            self._registry.transport.stopped.set()
            for future in running:
                future.cancel()
            wait(running)
        errors = [error for future in futures if not future.cancelled() and (error := future.exception())]
        for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
            raise error

    def _result(self, state: _State) -> Pushed:
        blobs = {
            blob.digest: blob.size for each in state.manifests for blob in each.blobs if not each.subject
        }
        manifests = sum(len(each.data) for each in state.manifests if not each.subject)
        return Pushed(
            state.item,
            sum(blobs.values()) + manifests,
            state.platforms,
            state.referrers,
            state.bytes["sent"],
            state.bytes["mounted"],
            state.bytes["present"],
            state.moved,
        )


def _as_referrer(wanted: _Wanted) -> Descriptor:
    """A descriptor as an index of referrers holds it: with the artifact's type and its annotations."""
    if wanted.descriptor.media_type == INDEX:
        return replace(wanted.descriptor, annotations=dict(Index.of_bytes(wanted.data).annotations))
    manifest = Manifest.of_bytes(wanted.data)
    return replace(
        wanted.descriptor,
        size=len(wanted.data),
        artifact_type=manifest.artifact_type or manifest.config.media_type,
        annotations=dict(manifest.annotations),
    )


def _attach_by_tag(repository: Repository, subject: str, artifacts: Sequence[Descriptor]) -> None:
    """Add `artifacts` to the subject's index of referrers (distribution-spec 1.1, "Referrers Tag Schema").

    Of two pushes that do this at once one can lose its entries; its next run adds them.
    """
    tag = fallback_tag(subject)
    try:
        known = Index.of_bytes(repository.manifest(tag).data).manifests
    except NotInRegistry:
        known = ()
    index = Index(tuple({each.digest: each for each in (*known, *artifacts)}.values()))
    repository.put_manifest(index.to_bytes(), INDEX, tag)


def _outcome(state: _State) -> str:
    outcomes: tuple[tuple[Outcome, str], ...] = (
        ("sent", "sent"),
        ("mounted", "mounted"),
        ("present", "there already"),
    )
    words = [
        f"{state.bytes[outcome] / 1e6:.1f} MB {text}" for outcome, text in outcomes if state.bytes[outcome]
    ]
    if state.referrers:
        words.append(f"{state.referrers} attached")
    if state.moved:
        words.append(f"tagged {', '.join(state.moved)}")
    return ", ".join(words)
