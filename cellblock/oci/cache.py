# SPDX-License-Identifier: Apache-2.0
"""Shares what builds made through a registry: one machine pushes layers, others fetch them by cache key.

An entry is an artifact (image-spec 1.1, "Guidelines for Artifact Usage") under the tag `cache-NAME-KEY`: its
configuration is a JSON object with the whole key and what the builder wants to remember, its layers are the
blobs to have. Whoever may write to the repository decides what others build from: keep it to CI.

Nothing here fails a build. The first error prints one warning, and reading (or writing) then stops.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from cellblock.errors import CellblockError
from cellblock.events import Events, Progress
from cellblock.oci.layout import Layout
from cellblock.oci.model import (
    MANIFEST,
    Descriptor,
    MalformedImage,
    Manifest,
    canonical,
    digest_of_bytes,
    parse,
)
from cellblock.oci.registry.client import Registry, Repository
from cellblock.oci.registry.connection import ConnectionOptions
from cellblock.oci.registry.download import blob_chunks
from cellblock.oci.registry.errors import NotInRegistry, WrongDigest
from cellblock.oci.registry.reference import Reference
from cellblock.oci.registry.upload import Upload

ENTRY = "application/vnd.cellblock.cache.v1"
RECORD = "application/vnd.cellblock.cache.record.v1+json"

# A cache that has to be waited for is none: fewer attempts than a push makes, and shorter waits.
_ATTEMPTS = 3
_PATIENCE_S = 10.0
_CONNECT_S = 5.0
# Characters of the key in a tag, which holds 128; the whole key is in the entry, and compared.
_KEY_LENGTH = 32

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class CacheEntry:
    """What was found under a key: its blobs are in the layout, `record` is what was given to `push`."""

    record: Mapping[str, Any]
    blobs: tuple[Descriptor, ...]


class RegistryCache:
    """The cache in `repository` (HOST/PATH) for what is in `layout`. May be used by several threads.

    Raises UsageError when `repository` is no name of a repository; nothing else ever fails.
    """

    def __init__(
        self, repository: str, layout: Layout, events: Events, options: ConnectionOptions | None = None
    ) -> None:
        reference = Reference.parse(repository)
        options = replace(
            options or ConnectionOptions(),
            attempts=_ATTEMPTS,
            unreachable_attempts=1,
            patience_s=_PATIENCE_S,
            connect_timeout_s=_CONNECT_S,
        )
        self._jobs = options.connections
        self._repository: Repository = Registry(reference.host, options).repository(reference.path)
        self._layout = layout
        self._events = events
        self._lock = threading.Lock()
        self._off: set[str] = set()

    # -- layers --------------------------------------------------------------------------------

    def pull_layer(self, key: str) -> CacheEntry | None:
        """The layer of cache key `key`: `blobs[0]` is in the layout, verified. None when there is none."""
        return self.pull("layer", key)

    def push_layer(self, key: str, layer: Descriptor, record: Mapping[str, Any]) -> bool:
        """Give the layer to others, with its record (JSON's types). False when that did not work."""
        return self.push("layer", key, record, [layer])

    # -- entries -------------------------------------------------------------------------------

    def pull(self, name: str, key: str) -> CacheEntry | None:
        """Fetch entry `name` of cache key `key` into the layout: what it lacks, verified by digest.

        None when there is none, or when it cannot be had: then a warning says why. Hold `layout.writing()`
        until the blobs have a name.
        """
        return self._guarded("reading", lambda: self._pull(name, key))

    def push(self, name: str, key: str, record: Mapping[str, Any], blobs: Sequence[Descriptor]) -> bool:
        """Store an entry, unless there is one. False, with a warning, when that did not work."""
        return self._guarded("writing", lambda: self._push(name, key, record, blobs)) is not None

    # -- inside --------------------------------------------------------------------------------

    def _pull(self, name: str, key: str) -> CacheEntry | None:
        try:
            manifest = Manifest.of_bytes(self._repository.manifest(_tag(name, key)).data)
        except NotInRegistry:
            return None
        text = parse(b"".join(blob_chunks(self._repository, manifest.config)))
        if manifest.artifact_type != ENTRY or text.get("key") != key:
            return None  # another key that begins alike: as good as none
        blobs = list({blob.digest: blob for blob in manifest.layers}.values())
        total = sum(blob.size for blob in blobs)
        done = 0

        def fetch(blob: Descriptor) -> None:
            nonlocal done
            if not self._layout.has(blob.digest):
                with self._layout.writer(expected=blob.digest) as writer:
                    for data in blob_chunks(self._repository, blob):
                        writer.write(data)
            with self._lock:
                done += blob.size
            self._events.emit(Progress(name, done, total))

        with ThreadPoolExecutor(self._jobs) as pool:
            list(pool.map(fetch, blobs))
        return CacheEntry(text.get("record") or {}, tuple(manifest.layers))

    def _push(self, name: str, key: str, record: Mapping[str, Any], blobs: Sequence[Descriptor]) -> bool:
        tag = _tag(name, key)
        if self._repository.descriptor(tag) is not None:
            return True
        text = canonical({"key": key, "name": name, "record": record})
        config = Descriptor(RECORD, digest_of_bytes(text), len(text))
        layers = tuple(replace(blob, annotations={}, platform=None) for blob in blobs)
        manifest = Manifest(config, layers, artifact_type=ENTRY, media_type=MANIFEST)
        with self._layout.writing():
            self._layout.write(text, RECORD)
            with ThreadPoolExecutor(self._jobs) as pool:
                sent = {blob.digest: blob for blob in (config, *layers)}.values()
                list(pool.map(lambda blob: self._upload(blob), sent))
        self._repository.put_manifest(manifest.to_bytes(), MANIFEST, tag)
        return True

    def _upload(self, blob: Descriptor) -> None:
        Upload(self._repository, blob, self._layout.blob(blob.digest)).run()

    def _guarded(
        self, direction: Literal["reading", "writing"], work: Callable[[], _Result]
    ) -> _Result | None:
        """What `work` gives; None after a failure, which is told once and ends that direction."""
        if direction in self._off:
            return None
        try:
            return work()
        except (CellblockError, OSError) as error:
            with self._lock:
                first = direction not in self._off
                # A damaged entry says nothing about the others.
                if not isinstance(error, (WrongDigest, MalformedImage)):
                    # What cannot be read is not worth writing to; the other way round it serves.
                    self._off |= {"reading", "writing"} if direction == "reading" else {direction}
            if first:
                only = "" if direction == "reading" else " for writing"
                self._events.warning(
                    f"the shared cache {self._repository} is left out{only}: "
                    f"{error if isinstance(error, CellblockError) else error.strerror or error}"
                )
            return None


def _tag(name: str, key: str) -> str:
    short = key.rpartition(":")[2][:_KEY_LENGTH]
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"cache-{name}-{short}")[:128]
