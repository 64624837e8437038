# SPDX-License-Identifier: Apache-2.0
"""Reads what an image holds: its files as its layers together show them, and contents of chosen files.

It reads the layers' blobs as streams (layer_tar.py), without unpacking. Whiteouts, opaque directories and
hard links follow OCI image-spec 1.1, layer.md, "Representing Changes".

    reader = ContentsReader(layout, keep=lambda entry: entry.path == "var/lib/dpkg/status")
    contents = reader.image(layout.image("localhost/cellblock/worker:debian13"))
    contents.entries["usr/bin/su"].mode
    contents.read("var/lib/dpkg/status")
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from cellblock.errors import CellblockError
from cellblock.files.sha256 import sha256_of
from cellblock.oci.layer_tar import Entry, FileStream, members
from cellblock.oci.layout import Layout, StoredImage
from cellblock.oci.model import Descriptor, MalformedImage

Inode = tuple[str, int]
"""A layer's digest and the number of a member in it: paths with one of these are one file."""

Keep = Callable[[Entry], bool]
"""Says of a regular file whether its contents are wanted. It stays in memory: mean small ones."""

# Kept contents are in memory at once. The largest that anything here asks for, the package database of a
# CUDA jail, has 3 MB.
_KEEP_AT_MOST = 64 << 20
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
# As many as Linux follows (path_resolution(7)).
_LINKS_AT_MOST = 40


@dataclass(frozen=True)
class LayerContents:
    """What one layer brings and removes. `entries` are in the layer's order.

    `removed` are paths that it takes from the layers below, `emptied` directories that it empties first
    (opaque). A hard link to a file of a lower layer has the target's path and no metadata of its own.
    """

    descriptor: Descriptor
    entries: Mapping[str, Entry]
    inodes: Mapping[str, Inode]
    kept: Mapping[Inode, bytes]
    removed: frozenset[str]
    emptied: frozenset[str]


class Contents:
    """The files of an image. `entries` by path, sorted; `layers` as they were read, the lowest first."""

    def __init__(self, layers: Sequence[LayerContents]) -> None:
        """Lay `layers` over each other. Raises MalformedImage for a hard link to nothing."""
        self.layers = tuple(layers)
        merged: dict[str, tuple[Entry, Inode]] = {}
        for number, layer in enumerate(layers):
            merged = _lay_over(merged, layer, number)
        self.entries, self._inodes = _settled(merged)

    def resolve(self, path: str) -> str | None:
        """The path that `path` leads to when symbolic links are followed inside the image.

        None when there is nothing. Links count from the image's root, as they will for its programs.
        """
        links = 0
        found: list[str] = []
        rest = [part for part in reversed(path.split("/")) if part]
        while rest:
            part = rest.pop()
            if part == ".":
                continue
            if part == "..":
                del found[-1:]
                continue
            entry = self.entries.get("/".join([*found, part]))
            if entry is None or entry.kind != "symlink":
                found.append(part)
                continue
            links += 1
            if links > _LINKS_AT_MOST:
                return None
            if entry.target.startswith("/"):
                found = []
            rest += [each for each in reversed(entry.target.split("/")) if each]
        resolved = "/".join(found)
        return resolved if resolved in self.entries else None

    def read(self, path: str) -> bytes | None:
        """The contents of the file that `path` leads to; None when there is none or it was not kept."""
        resolved = self.resolve(path)
        inode = self._inodes.get(resolved) if resolved is not None else None
        if inode is None:
            return None
        return next((layer.kept[inode] for layer in self.layers if inode in layer.kept), None)

    def glob(self, pattern: str) -> list[str]:
        """Paths that match `pattern`, as PurePosixPath.match understands it, sorted."""
        return [path for path in self.entries if path and PurePosixPath(path).match(pattern)]


class ContentsReader:
    """Reads images of `layout`, and each layer once, however many of them hold it.

    `keep` chooses the files whose contents are kept; with `digests` every file's SHA-256 is taken. The
    reader remembers all that it read: use one for a set of images, and let it go then.
    """

    def __init__(self, layout: Layout, *, keep: Keep | None = None, digests: bool = False) -> None:
        self._layout = layout
        self._keep = keep
        self._digests = digests
        self._layers: dict[str, LayerContents] = {}

    def image(self, image: StoredImage) -> Contents:
        """The files of `image`. Raises MalformedImage when a layer is absent or damaged."""
        return Contents([self.layer(descriptor) for descriptor in image.manifest.layers])

    def layer(self, descriptor: Descriptor) -> LayerContents:
        """One layer alone. Raises MalformedImage."""
        known = self._layers.get(descriptor.digest)
        if known is None:
            known = self._layers[descriptor.digest] = self._read(descriptor)
        return known

    def _read(self, descriptor: Descriptor) -> LayerContents:
        entries: dict[str, Entry] = {}
        inodes: dict[str, Inode] = {}
        kept: dict[Inode, bytes] = {}
        removed: set[str] = set()
        emptied: set[str] = set()
        for number, (entry, stream) in enumerate(members(self._layout.blob(descriptor.digest))):
            folder, _, name = entry.path.rpartition("/")
            if name.startswith(_WHITEOUT):
                if name == _OPAQUE:
                    emptied.add(folder)
                else:
                    removed.add(f"{folder}/{name[len(_WHITEOUT) :]}".lstrip("/"))
                continue
            inode: Inode | None = (descriptor.digest, number)
            if entry.kind == "hardlink":
                inode = inodes.get(entry.target)
                if inode is not None:
                    entry = entries[entry.target]._replace(
                        path=entry.path, kind="hardlink", target=entry.target
                    )
            elif stream is not None:
                digest, data = self._content(entry, stream)
                if digest is not None:
                    entry = entry._replace(digest=digest)
                if data is not None:
                    kept[descriptor.digest, number] = data
            # A name that stands twice in one tar means its last.
            entries[entry.path] = entry
            inodes.pop(entry.path, None)
            if inode is not None:
                inodes[entry.path] = inode
        return LayerContents(descriptor, entries, inodes, kept, frozenset(removed), frozenset(emptied))

    def _content(self, entry: Entry, stream: FileStream) -> tuple[str | None, bytes | None]:
        if self._keep is not None and self._keep(entry):
            if entry.size > _KEEP_AT_MOST:
                raise CellblockError(
                    f"/{entry.path} of an image has {entry.size} bytes, more than are held in memory at once",
                    hint="see how it came into the image: `build.py report`",
                )
            data = stream.read()
            return (hashlib.sha256(data).hexdigest() if self._digests else None), data
        return (sha256_of(stream) if self._digests else None), None


def _lay_over(
    below: dict[str, tuple[Entry, Inode]], layer: LayerContents, number: int
) -> dict[str, tuple[Entry, Inode]]:
    added: dict[str, tuple[Entry, Inode]] = {}
    for path, entry in layer.entries.items():
        inode = layer.inodes.get(path)
        if inode is None:
            # A hard link to a file of a lower layer.
            target = below.get(entry.target)
            if target is None or target[0].kind == "directory":
                raise MalformedImage(
                    f"layer {layer.descriptor.digest}: /{path} is a hard link to /{entry.target}, no file",
                    hint="build or copy the image again",
                )
            added[path] = target[0]._replace(path=path, layer=number), target[1]
        else:
            added[path] = entry._replace(layer=number), inode
    # A path that stops being a directory takes what was in it along.
    gone = layer.removed | {path for path, (entry, _) in added.items() if entry.kind != "directory"}
    if below and (gone or layer.emptied):
        below = {path: found for path, found in below.items() if not _is_gone(path, gone, layer.emptied)}
    return {**below, **added}


def _is_gone(path: str, gone: set[str] | frozenset[str], emptied: frozenset[str]) -> bool:
    if path in gone:
        return True
    while path:
        path = path.rpartition("/")[0]
        if path in emptied or (path and path in gone):
            return True
    return False


def _settled(merged: Mapping[str, tuple[Entry, Inode]]) -> tuple[dict[str, Entry], dict[str, Inode]]:
    """Sorted; of the names of one file the first is the file, the others are hard links to it."""
    entries: dict[str, Entry] = {}
    inodes: dict[str, Inode] = {}
    first: dict[Inode, str] = {}
    for path in sorted(merged):
        entry, inode = merged[path]
        if entry.kind in ("file", "hardlink"):
            name = first.setdefault(inode, path)
            if name == path:
                entry = entry._replace(kind="file", target="")
            else:
                entry = entry._replace(kind="hardlink", target=name)
        entries[path] = entry
        inodes[path] = inode
    return entries, inodes
