# SPDX-License-Identifier: Apache-2.0
"""Keeps an OCI image layout (image-spec 1.1, image-layout.md): blobs by digest, and an index of names.

Several processes may write at once. A blob is written beside its place, verified, and renamed, so that
whatever has a digest for its name is whole; the index is replaced by rename under a lock. A crash
leaves at most files in `.cellblock/`, which `collect_garbage` removes.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.files.flock import locked
from cellblock.oci.blob_writer import BlobWriter
from cellblock.oci.model import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    INDEX,
    MANIFEST,
    REF_NAME,
    Configuration,
    Descriptor,
    Index,
    MalformedImage,
    Manifest,
    digest_of_bytes,
)
from cellblock.privilege import AS_ROOT, needs_root

_PRIVATE = ".cellblock"
_DAY_S = 24 * 3600


@dataclass(frozen=True)
class StoredImage:
    """An image of a layout: its manifest with digest, and its configuration."""

    descriptor: Descriptor
    manifest: Manifest
    configuration: Configuration

    @property
    def digest(self) -> str:
        """The manifest's digest."""
        return self.descriptor.digest

    @property
    def size(self) -> int:
        """Bytes that somebody who has nothing yet pulls."""
        blobs = {blob.digest: blob.size for blob in (self.manifest.config, *self.manifest.layers)}
        return self.descriptor.size + sum(blobs.values())


class Layout:
    """The layout in `folder`, which is made when something is first written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    # -- blobs ---------------------------------------------------------------------------------

    def blob(self, digest: str) -> Path:
        """Where the blob `digest` is or would be."""
        algorithm, _, hexadecimal = digest.partition(":")
        return self.folder / "blobs" / algorithm / hexadecimal

    def has(self, digest: str) -> bool:
        """Whether the blob is there."""
        return self.blob(digest).is_file()

    def read(self, digest: str) -> bytes:
        """A small blob (a manifest, a configuration). Raises MalformedImage when absent or damaged."""
        path = self.blob(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise MalformedImage(
                f"{self.folder}: blob {digest} is not there", hint="build or copy the image again"
            ) from error
        if digest_of_bytes(data) != digest:
            raise MalformedImage(
                f"{path}: its content has another digest, {digest_of_bytes(data)}",
                hint=f"remove {path} and build or copy the image again",
            )
        return data

    def write(self, data: bytes, media_type: str) -> Descriptor:
        """Store a small blob."""
        with self.writer() as writer:
            writer.write(data)
        return Descriptor(media_type, writer.digest, len(data))

    @contextmanager
    def writer(self, expected: str | None = None) -> Iterator[BlobWriter]:
        """A file-like writer of one blob, which stands under its digest after the block.

        With `expected`, raises MalformedImage when the bytes have another digest; after any error
        nothing is stored. Nothing is synced: what a power cut takes can be made again.
        """
        self._prepare()
        path = self.folder / _PRIVATE / f"blob-{os.getpid()}-{secrets.token_hex(6)}"
        try:
            with path.open("xb") as file:
                writer = BlobWriter(file)
                yield writer
            writer.finish()
            if expected is not None and writer.digest != expected:
                raise MalformedImage(f"blob {expected} arrived with another digest, {writer.digest}")
            path.chmod(0o644)
            path.replace(self.blob(writer.digest))
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def note_use(self, digest: str) -> None:
        """Have the blob's time say that it was used today: what was not for longest is trimmed first."""
        path = self.blob(digest)
        with suppress(OSError):
            # Not each time: who watches files for changes would see one (cellblock.launcher.up_to_date).
            if time.time() - path.stat().st_mtime > _DAY_S:
                os.utime(path)

    # -- images --------------------------------------------------------------------------------

    def references(self) -> Mapping[str, Descriptor]:
        """Descriptors by the names that the index gives them."""
        return {
            manifest.annotations[REF_NAME]: manifest
            for manifest in self._index().manifests
            if REF_NAME in manifest.annotations
        }

    def image(self, name: str) -> StoredImage:
        """The image called `name`, or with that digest. Raises CellblockError when there is none.

        An index of several platforms is not an image: its manifests are named by their digests.
        """
        known = self.references()
        descriptor = known.get(name)
        if descriptor is None and name.startswith("sha256:") and self.has(name):
            data = self.read(name)
            descriptor = Descriptor(MANIFEST, name, len(data))
        if descriptor is None:
            listed = ", ".join(sorted(known)) or "none"
            raise CellblockError(
                f"{self.folder}: there is no image '{name}'; there are: {listed}",
                hint="see `build.py targets`, and build it",
            )
        return self.stored(descriptor)

    def stored(self, descriptor: Descriptor) -> StoredImage:
        """The image of a manifest's descriptor. Raises MalformedImage."""
        manifest = Manifest.of_bytes(self.read(descriptor.digest))
        configuration = Configuration.of_bytes(self.read(manifest.config.digest))
        return StoredImage(descriptor, manifest, configuration)

    def add(self, manifest: Manifest, configuration: Configuration, names: Sequence[str]) -> StoredImage:
        """Store manifest and configuration; `names` then mean this image. The layers must be there."""
        self.write(configuration.to_bytes(), manifest.config.media_type)
        written = self.write(manifest.to_bytes(), manifest.media_type)
        descriptor = replace(written, platform=configuration.platform)
        self.tag(descriptor, names)
        return StoredImage(descriptor, manifest, configuration)

    def attach(self, artifact: Manifest) -> Descriptor:
        """Store an artifact whose `subject` is an image here; `referrers` finds it."""
        written = self.write(artifact.to_bytes(), artifact.media_type)
        descriptor = replace(
            written, artifact_type=artifact.artifact_type, annotations=dict(artifact.annotations)
        )
        self._change(lambda manifests: [*(m for m in manifests if m.digest != written.digest), descriptor])
        return descriptor

    def detach(self, digests: Sequence[str]) -> None:
        """Forget artifacts; `collect_garbage` removes their blobs."""
        if digests:
            self._change(lambda all_: [each for each in all_ if each.digest not in digests])

    def referrers(self, digest: str, artifact_type: str | None = None) -> list[Descriptor]:
        """Artifacts that say something about the image `digest`."""
        found = []
        for descriptor in self._index().manifests:
            if descriptor.artifact_type is None or artifact_type not in (None, descriptor.artifact_type):
                continue
            subject = Manifest.of_bytes(self.read(descriptor.digest)).subject
            if subject and subject.digest == digest:
                found.append(descriptor)
        return found

    def tag(self, descriptor: Descriptor, names: Sequence[str]) -> None:
        """Give `names` to what `descriptor` describes, taking them from others."""

        def change(manifests: list[Descriptor]) -> list[Descriptor]:
            kept = [each for each in manifests if each.annotations.get(REF_NAME) not in names]
            return kept + [replace(descriptor, annotations={REF_NAME: name}) for name in names]

        self._change(change)

    def untag(self, names: Sequence[str]) -> None:
        """Take `names` away; `collect_garbage` removes what then has none."""
        self._change(lambda all_: [each for each in all_ if each.annotations.get(REF_NAME) not in names])

    def collect_garbage(self, afterwards: Callable[[], None] = lambda: None) -> int:
        """Remove blobs that no name leads to, and what crashes left; returns bytes freed.

        `afterwards` is called when that is done, while still nobody writes.
        Does nothing while another process is between writing blobs and naming them (`writing`).
        """
        if not self.folder.is_dir():
            return 0
        with self._lock("writing", fcntl.LOCK_EX | fcntl.LOCK_NB) as alone:
            if not alone:
                return 0
            freed = self.remove_unreached()
            afterwards()
            return freed

    def remove_unreached(self) -> int:
        """What `collect_garbage` does, for who is `alone` already. Raises MalformedImage."""
        if not self.folder.is_dir():
            return 0
        needed: set[str] = set()
        orphans: list[str] = []
        # What speaks of an image that is gone goes with it. Images stand before what speaks of them.
        for descriptor in sorted(self._index().manifests, key=lambda each: each.artifact_type or ""):
            if descriptor.artifact_type is not None:
                subject = Manifest.of_bytes(self.read(descriptor.digest)).subject
                if subject and subject.digest not in needed:
                    orphans.append(descriptor.digest)
                    continue
            needed.update(self._reached([descriptor]))
        self.detach(orphans)
        freed = 0
        for path in (self.folder / "blobs" / "sha256").iterdir():
            if f"sha256:{path.name}" not in needed:
                freed += path.stat().st_size
                path.unlink()
        for path in (self.folder / _PRIVATE).glob("blob-*"):
            freed += path.stat().st_size
            path.unlink()
        return freed

    def reached(self, descriptor: Descriptor) -> list[str]:
        """Digests of what `descriptor` leads to, itself included, as far as they can be known."""
        found: list[str] = []
        with suppress(MalformedImage):
            found.extend(self._reached([descriptor]))
        return found or [descriptor.digest]

    def forget_incomplete(self) -> list[str]:
        """Take their names from images of which a blob is not there, and what says something of them too.

        Returns the names. Raises MalformedImage when the index cannot be read.
        """
        gone = [each for each in self._index().manifests if not self._is_complete(each)]
        if gone:
            self._change(lambda all_: [each for each in all_ if each not in gone])
        return [each.annotations.get(REF_NAME, each.digest) for each in gone]

    def _is_complete(self, descriptor: Descriptor) -> bool:
        try:
            return all(self.has(digest) for digest in self._reached([descriptor]))
        except MalformedImage:
            return False

    @contextmanager
    def alone(self, waiting: Callable[[], None] | None = None) -> Iterator[None]:
        """Nobody is in `writing`; who comes waits. `waiting` is called when somebody is waited for."""
        self._prepare()
        with locked(self.folder / _PRIVATE / "writing.lock", waiting=waiting):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep blobs from being collected or trimmed: those that have no name yet, and those in use."""
        self._prepare()
        with self._lock("writing", fcntl.LOCK_SH):
            yield

    def copy_to(self, names: Mapping[str, str], target: Layout) -> None:
        """Copy images here to another layout, with what refers to them.

        `names` maps names there to names or digests here.
        """
        with target.writing():
            for there, here in names.items():
                image = self.image(here)
                for digest in self._reached([image.descriptor]):
                    if not target.has(digest):
                        target._adopt(self.blob(digest), digest)
                target.tag(image.descriptor, [there])
                self._copy_referrers(image.digest, target)

    # -- inside --------------------------------------------------------------------------------

    def _copy_referrers(self, digest: str, target: Layout) -> None:
        artifacts = self.referrers(digest)
        known = {each.digest for each in target.referrers(digest)}
        new = [each for each in artifacts if each.digest not in known]
        for blob in self._reached(new):
            if not target.has(blob):
                target._adopt(self.blob(blob), blob)
        if new:
            target._change(lambda manifests: [*manifests, *new])
        for artifact in artifacts:
            self._copy_referrers(artifact.digest, target)  # a signature of an SBOM, say

    def _adopt(self, path: Path, digest: str) -> None:
        try:
            os.link(path, self.blob(digest))
        except FileExistsError:
            return
        except OSError:  # another file system
            with self.writer(expected=digest) as writer, path.open("rb") as source:
                shutil.copyfileobj(source, writer, 1 << 20)

    def _reached(self, descriptors: Sequence[Descriptor]) -> Iterator[str]:
        """Digests of all blobs that `descriptors` lead to, themselves included."""
        for descriptor in descriptors:
            yield descriptor.digest
            if descriptor.media_type in (INDEX, DOCKER_LIST):
                yield from self._reached(Index.of_bytes(self.read(descriptor.digest)).manifests)
            elif descriptor.media_type in (MANIFEST, DOCKER_MANIFEST):
                manifest = Manifest.of_bytes(self.read(descriptor.digest))
                yield manifest.config.digest
                yield from (layer.digest for layer in manifest.layers)

    def _index(self) -> Index:
        path = self.folder / "index.json"
        try:
            return Index.of_bytes(path.read_bytes())
        except FileNotFoundError:
            return Index(())
        except MalformedImage as error:
            raise MalformedImage(
                f"{path}: {error}", hint=f"remove the folder {self.folder}: what it held can be made again"
            ) from error

    def _change(self, change: Callable[[list[Descriptor]], list[Descriptor]]) -> None:
        self._prepare()
        with self._lock("index", fcntl.LOCK_EX):
            index = self._index()
            changed = Index(tuple(change(list(index.manifests))), index.annotations)
            path = self.folder / _PRIVATE / "index"
            path.write_bytes(changed.to_bytes())
            path.replace(self.folder / "index.json")

    @contextmanager
    def _lock(self, name: str, how: int) -> Iterator[bool]:
        with (self.folder / _PRIVATE / f"{name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, how)
            except BlockingIOError:
                yield False
                return
            yield True

    def _prepare(self) -> None:
        if (self.folder / "oci-layout").is_file() and (self.folder / _PRIVATE).is_dir():
            return
        try:
            for name in ("blobs/sha256", _PRIVATE):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            if not (self.folder / "index.json").exists():
                (self.folder / "index.json").write_bytes(Index(()).to_bytes())
            (self.folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
        except OSError as error:
            raise CellblockError(
                f"{self.folder}: cannot be made a store of images: {error.strerror}",
                hint=f"{AS_ROOT if needs_root(error) else 'make room'}, or use a folder that can be written",
            ) from error
