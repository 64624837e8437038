"""What a jail is assembled from: an image, an OCI layout, a tar, or a directory.

    localhost/cellblock/jail:debian13    an image in the storage of podman and buildah
    oci:DIR[:TAG]                        an OCI layout
    /PATH/x.tar[.gz|.zst|.xz|.bz2]       a tar
    /PATH, ./PATH, ../PATH               a root directory

A source is asked for its identity first (cheap: is there anything to do?) and opened only then.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from cellblock.errors import CellblockError
from cellblock.jail import layout, manifest, tree
from cellblock.jail.archive import Archive
from cellblock.jail.entry import Entry
from cellblock.process import Programs

_LABEL = "org.cellblock"
_TAR = re.compile(r"\.(tar|tgz|tar\.[a-z0-9]+)$")


@dataclass(frozen=True)
class SourceIdentity:
    """Which source exactly: `id` is equal for equal content and decides whether anything changed.

    For images and layouts it is the digest of the image's configuration, for a tar the SHA-256 of the
    file, for a directory that of its listing. `stamp` is a shortcut that a tar's unchanged file has.
    `key` and `release` are what the image's labels say: Cellblock's cache key and Slurm's release.
    """

    kind: Literal["image", "layout", "tar", "directory"]
    reference: str
    id: str
    key: str = ""
    release: str = ""
    stamp: str = ""

    def __str__(self) -> str:
        """For a message: what was asked for and which one it was."""
        return f"{self.reference} ({self.id[: len('sha256:') + 12]})"


@dataclass(frozen=True)
class Opened:
    """A source ready to be read: its sorted entries, and their content in a `directory` or `archive`."""

    entries: list[Entry]
    directory: bytes | None = None
    archive: Archive | None = None


class Source(Protocol):
    """One kind of source."""

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Which source this is. `known` is one of the past that may save reading it all again."""

    def open(self, note: Path) -> _OpenedContext:
        """Read the entries; what must be undone after a kill is written to the file `note`."""


class _OpenedContext(Protocol):
    def __enter__(self) -> Opened: ...
    def __exit__(self, *error: Any) -> bool | None: ...


def find_source(text: str) -> Source:
    """The source that `text` names. Raises CellblockError when there is none."""
    if text.startswith("oci:"):
        folder, _, tag = text[len("oci:") :].partition(":")
        return LayoutSource(text, Path(folder), tag)
    path = Path(text).expanduser()
    is_path = text.startswith(("/", "./", "../", "~")) or text in (".", "..")
    if not is_path and not (_TAR.search(text) and path.is_file()):
        return ImageSource(text)
    if not path.exists():
        raise CellblockError(f"there is no {path} to assemble from", hint="name a tar or a directory")
    if (path / "oci-layout").exists():
        raise CellblockError(f"{path} is an OCI layout", hint=f"say so: oci:{path}")
    return DirectorySource(text, path) if path.is_dir() else TarSource(text, path)


@dataclass(frozen=True)
class ImageSource:
    """An image that buildah or podman holds, mounted read-only while it is read."""

    reference: str

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Ask podman: it shares buildah's storage and mounts images without a container."""
        done = Programs().run(["podman", "image", "inspect", self.reference], check=False)
        if done.status != 0:
            hint = "`podman images` lists them; `python3 build.py build jail` builds the jail's"
            if Path(self.reference).exists():
                hint = f"for the directory or file of that name write ./{self.reference}"
            raise CellblockError(f"there is no image {self.reference} in this machine's storage", hint=hint)
        image = json.loads(done.output)[0]
        return _from_labels("image", self.reference, f"sha256:{image['Id']}", image.get("Labels") or {})

    @contextmanager
    def open(self, note: Path) -> Iterator[Opened]:
        """Mount the image by its id: a tag may move meanwhile."""
        image = self.identify(None).id.removeprefix("sha256:")
        note.write_text(image, encoding="ascii")
        mounted = Programs().run(["podman", "image", "mount", image]).output.strip()
        try:
            folder = os.fsencode(mounted)
            yield Opened(list(tree.walk(folder)), directory=folder)
        finally:
            release(note)


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
        found = layout.read_image(self.folder, self.tag)
        return _from_labels("layout", self.reference, found.id, found.labels)

    @contextmanager
    def open(self, note: Path) -> Iterator[Opened]:
        """Check every layer against its digest, then merge them."""
        archive = Archive(
            [layout.blob(self.folder, one) for one in layout.read_image(self.folder, self.tag).layers]
        )
        yield Opened(archive.entries, archive=archive)


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
        return SourceIdentity("tar", self.reference, "sha256:" + layout.sha256_of(self.path), stamp=stamp)

    @contextmanager
    def open(self, note: Path) -> Iterator[Opened]:
        """Read the headers."""
        archive = Archive([self.path])
        yield Opened(archive.entries, archive=archive)


@dataclass(frozen=True)
class DirectorySource:
    """A root directory."""

    reference: str
    path: Path

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Hash its listing: owners, modes, sizes, times and attributes; content only shows as a time."""
        total = hashlib.sha256()
        for entry in tree.walk(os.fsencode(self.path.resolve())):
            total.update(manifest.line(entry))
        return SourceIdentity("directory", self.reference, "sha256:" + total.hexdigest())

    @contextmanager
    def open(self, note: Path) -> Iterator[Opened]:
        """Walk it."""
        folder = os.fsencode(self.path.resolve())
        yield Opened(list(tree.walk(folder)), directory=folder)


def _from_labels(
    kind: Literal["image", "layout"], reference: str, identity: str, labels: Mapping[str, str]
) -> SourceIdentity:
    return SourceIdentity(
        kind,
        reference,
        identity,
        key=labels.get(f"{_LABEL}.key", ""),
        release=labels.get(f"{_LABEL}.slurm", ""),
    )
