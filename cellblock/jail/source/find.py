"""What a jail is assembled from: an image, an OCI layout, a tar, or a directory.

    jail, localhost/cellblock/jail:debian13    an image that this checkout built
    localhost/IMAGE:TAG, containers-storage:IMAGE    an image in the storage of podman and buildah
    docker://HOST/PATH[:TAG][@DIGEST]    an image in a registry
    oci:DIR[:TAG]                        an OCI layout
    oci-archive:FILE[:TAG]               an OCI layout packed into a tar
    /PATH/x.tar[.gz|.zst|.xz|.bz2]       a tar
    /PATH, ./PATH, ../PATH               a root directory

A source is asked for its identity first (cheap: is there anything to do?). Then `feed` gives its bytes to
the image core, which reads them once.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import lzma
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal, Protocol, cast

from cellblock.errors import CellblockError, UsageError
from cellblock.files.sha256 import sha256_of_file
from cellblock.jail.source.feeding import Feeding, opener, piped
from cellblock.jail.source.image_core import LayerBytes
from cellblock.jail.tree import entries, manifest
from cellblock.oci import layout_reader
from cellblock.process import Programs

_LABEL = "org.cellblock"
_OTHER_FORMS = re.compile(
    r"(https?://|docker-(archive|daemon):|dir:|file:|sif:|ostree:|registry:|docker:|oci/)"
)
"""What other tools name an image by, and what people write for `docker://`."""
_TAR = re.compile(r"\.(tar|tgz|tar\.[a-z0-9]+)$")

_FORMS = (
    "write docker://HOST/PATH[:TAG] (a registry), oci:DIR[:TAG], oci-archive:FILE[:TAG], the name of an "
    "image that this checkout built (jail), containers-storage:IMAGE (podman's), or a tar or a directory "
    "(/PATH or ./PATH)"
)


@dataclass(frozen=True)
class SourceIdentity:
    """Which source exactly: `id` is equal for equal content and decides whether anything changed.

    For images and layouts it is the digest of the image's configuration, for a tar the SHA-256 of the
    file, for a directory that of its listing. `stamp` is a shortcut that a tar's unchanged file has.
    `key` and `release` are what the image's labels say: Cellblock's cache key and Slurm's release.
    """

    kind: Literal["image", "registry", "layout", "tar", "directory"]
    reference: str
    id: str
    key: str = ""
    release: str = ""
    stamp: str = ""

    def __str__(self) -> str:
        """For a message: what was asked for and which one it was."""
        return f"{self.reference} ({self.id[: len('sha256:') + 12]})"


class Source(Protocol):
    """One kind of source."""

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Which source this is. `known` is one of the past that may save reading it all again."""

    def feed(self, note: Path) -> AbstractContextManager[Feeding]:
        """The bytes, for the image core; what must be undone after a kill is written to the file `note`."""


def find_source(text: str) -> Source:
    """The source that `text` names. Raises UsageError: it names none; CellblockError: it is not there."""
    if not text:
        raise UsageError("no source is named", hint=_FORMS)
    if text.startswith("oci:"):
        folder, _, tag = _named(text).partition(":")
        return LayoutSource(text, Path(folder), tag)
    if text.startswith("oci-archive:"):
        from cellblock.jail.source.archive_source import ArchiveSource

        file, _, tag = _named(text).partition(":")
        return ArchiveSource(text, Path(file), tag)
    if text.startswith("docker://"):
        from cellblock.jail.source.registry_source import RegistrySource

        return RegistrySource(text)
    if text.startswith("containers-storage:"):
        return ImageSource(_named(text))
    if text.startswith("localhost/cellblock/"):
        try:
            from cellblock.jail.source.store_source import StoreSource
        except ModuleNotFoundError as error:  # the package in the image jail-init builds nothing
            raise CellblockError(
                f"nothing is built here, so there is no {text}",
                hint="push it, and name docker://HOST/PATH:TAG",
            ) from error
        return StoreSource(text)
    if _OTHER_FORMS.match(text):
        raise UsageError(f"'{text}' is no form of a source", hint=_FORMS)
    path = Path(text).expanduser()
    is_path = text.startswith(("/", "./", "../", "~")) or text in (".", "..")
    if not is_path and not (_TAR.search(text) and path.is_file()):
        return ImageSource(text)
    if not path.exists():
        raise CellblockError(f"there is no {path} to assemble from", hint="name a tar or a directory")
    if (path / "oci-layout").exists():
        raise CellblockError(f"{path} is an OCI layout", hint=f"say so: oci:{path}")
    if path.is_dir():
        return DirectorySource(text, path)
    if not path.is_file():
        # It is read twice, to hash and to unpack: a pipe has nothing the second time, /dev/zero no end.
        raise CellblockError(
            f"{path} is neither a file nor a directory", hint="write what it gives to a file first"
        )
    return TarSource(text, path)


def _named(text: str) -> str:
    """What stands behind the first colon. Raises UsageError: nothing does, which would be this directory."""
    found = text.partition(":")[2]
    if found.partition(":")[0]:
        return found
    raise UsageError(f"'{text}' names no {'file' if 'archive' in text else 'directory'}", hint=_FORMS)


@dataclass(frozen=True)
class ImageSource:
    """An image that buildah or podman holds, mounted read-only while it is read."""

    reference: str

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Ask podman: it shares buildah's storage and mounts images without a container."""
        done = Programs().run(["podman", "image", "inspect", self.reference], check=False)
        if done.status != 0:
            hint = "`podman images` lists them; `python3 build.py build jail` builds the image `jail`"
            if Path(self.reference).exists():
                hint = f"for the directory or file of that name write ./{self.reference}"
            if _TAR.search(self.reference):
                raise CellblockError(
                    f"there is no file {Path(self.reference).absolute()}, and no image of that name",
                    hint="name a tar that is there",
                )
            raise CellblockError(f"there is no image {self.reference} in this machine's storage", hint=hint)
        image = json.loads(done.output)[0]
        return from_labels("image", self.reference, f"sha256:{image['Id']}", image.get("Labels") or {})

    @contextmanager
    def _mounted(self, note: Path) -> Iterator[Path]:
        """Mount the image by its id: a tag may move meanwhile."""
        image = self.identify(None).id.removeprefix("sha256:")
        note.write_text(image, encoding="ascii")
        try:
            yield Path(Programs().run(["podman", "image", "mount", image]).output.strip())
        finally:
            release(note)

    @contextmanager
    def feed(self, note: Path) -> Iterator[Feeding]:
        """Mount it."""
        with self._mounted(note) as mounted:
            yield _feeding_of_directory(mounted)


def release(note: Path) -> None:
    """Unmount the image that `note` names: podman counts mounts, so exactly once for each."""
    try:
        image = note.read_text(encoding="ascii")
    except FileNotFoundError:
        return
    Programs().run(["podman", "image", "unmount", image], check=False)
    note.unlink()


@dataclass(frozen=True)
class LayoutSource:
    """An image of an OCI layout."""

    reference: str
    folder: Path
    tag: str

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Read the index, the manifest and the configuration; no layer."""
        found = layout_reader.read_image(self.folder, self.tag)
        return from_labels("layout", self.reference, found.id, found.labels)

    @contextmanager
    def feed(self, note: Path) -> Iterator[Feeding]:
        """The layers as they lie; the core checks their digests."""
        feeding, layers = Feeding(), []
        for digest in layout_reader.read_image(self.folder, self.tag).layers:
            path = layout_reader.blob_path(self.folder, digest)
            try:
                feeding.total += path.stat().st_size
            except FileNotFoundError:
                raise CellblockError(
                    f"{self.folder}: the blob {digest} is missing", hint="copy the whole layout again"
                ) from None
            layers.append(LayerBytes(str(path), digest.removeprefix("sha256:"), opener(path)))
        feeding.layers, feeding.needs = layers, feeding.total
        yield feeding


@dataclass(frozen=True)
class TarSource:
    """A tar file, compressed or not."""

    reference: str
    path: Path

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Hash the file, unless it is untouched since `known` was made from it."""
        status = self.path.stat()
        stamp = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
        if known is not None and known.kind == "tar" and known.stamp == stamp:
            return replace(known, reference=self.reference)
        return SourceIdentity("tar", self.reference, "sha256:" + sha256_of_file(self.path), stamp=stamp)

    @contextmanager
    def feed(self, note: Path) -> Iterator[Feeding]:
        """The file, or what xz and bzip2 make of it, which the core does not read itself."""
        feeding = Feeding(total=self.path.stat().st_size)
        feeding.needs = feeding.total
        with self.path.open("rb") as file:
            magic = file.read(6)
        how: Callable[[Path], IO[bytes]] | None = None
        if magic.startswith((b"BZh", b"\xfd7zXZ")):
            how = cast("Callable[[Path], IO[bytes]]", bz2.open if magic.startswith(b"BZh") else lzma.open)
        if how is None:
            feeding.layers = [LayerBytes(str(self.path), None, opener(self.path))]
        else:
            feeding.total = 0
            feeding.layers = [
                LayerBytes(str(self.path), None, piped(feeding, lambda: _decompressed(self.path, how)))
            ]
        yield feeding


def _decompressed(path: Path, how: Callable[[Path], IO[bytes]]) -> Iterator[bytes]:
    try:
        with how(path) as stream:
            while data := stream.read(1 << 20):
                yield data
    except (EOFError, lzma.LZMAError, OSError) as error:
        raise CellblockError(f"{path}: cannot read this as a tar archive: {error}") from error


@dataclass(frozen=True)
class DirectorySource:
    """A root directory."""

    reference: str
    path: Path

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Hash its listing: owners, modes, sizes, times and attributes; content only shows as a time."""
        total = hashlib.sha256()
        for entry in entries.walk(os.fsencode(self.path.resolve())):
            total.update(manifest.line(entry))
        return SourceIdentity("directory", self.reference, "sha256:" + total.hexdigest())

    @contextmanager
    def feed(self, note: Path) -> Iterator[Feeding]:
        """Its path."""
        yield _feeding_of_directory(self.path.resolve())


def _feeding_of_directory(folder: Path) -> Feeding:
    """With what it holds: its listing is in memory since it was walked for the identity."""
    feeding, seen = Feeding(directory=folder), set[tuple[int, int]]()
    for place, folders, files in os.walk(os.fsencode(folder)):
        feeding.files += 1 + len(files)
        for name in (*folders, *files):
            status = os.lstat(place + b"/" + name)
            if stat.S_ISLNK(status.st_mode) and name in folders:
                feeding.files += 1
            if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
                continue
            if status.st_nlink > 1:
                seen.add((status.st_dev, status.st_ino))
            feeding.total += status.st_size
            feeding.needs += min(status.st_size, status.st_blocks * 512)
    return feeding


def from_labels(
    kind: Literal["image", "registry", "layout"], reference: str, identity: str, labels: Mapping[str, str]
) -> SourceIdentity:
    """The identity of an image with these labels; `identity` is its configuration's digest."""
    return SourceIdentity(
        kind,
        reference,
        identity,
        key=labels.get(f"{_LABEL}.key", ""),
        release=labels.get(f"{_LABEL}.slurm", ""),
    )
