# SPDX-License-Identifier: Apache-2.0
"""Divides an image's files among layers by package, so that an update of one package transfers few bytes.

`build.py push --spread` sends images so. Built layers are shared among images, but each has dpkg's whole
database: an updated package changes its layer and all above it. Here the merged image is divided anew: each
large source package has a layer, the others share a few by a hash of their names, with dpkg's records beside
a package's files. The last layer, a small one, has what changes with every build (dpkg's status, accounts,
caches). docs/decisions/push-spread-layers.md says what it costs.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from cellblock.debian.status import Package
from cellblock.errors import CellblockError
from cellblock.jail.source.image_core import ImageError, LayerBytes, Target, assembling
from cellblock.jail.source.stream import opener
from cellblock.jail.tree import databases
from cellblock.jail.tree.access import TreeAccess
from cellblock.jail.tree.dpkg_database import Database, info_owner, linked_folders
from cellblock.oci.layer import Compression, Layer, store_entries
from cellblock.oci.layout import Layout, StoredImage
from cellblock.oci.model import Descriptor
from cellblock.privilege import require_root

_LARGE = 32
"""A source package of more than this part of all bytes has a layer of its own."""
_SHARED = 64
"""Layers that the others share. With those of their own an image stays far below the 127 of engines."""
_CONSTANT = 1
"""Seconds since the epoch: the time of folders, and of what a build writes beside a package's files."""
_OWN, _STATE = "files of no package", "state"
_CHANGING = (b"var/", b"etc/", b"run/", b"root/", b"home/", b"tmp/")
"""Where programs keep what each build makes anew."""


@dataclass
class _Group:
    """The files of one layer, without folders; `size` in bytes."""

    name: str
    files: list[bytes] = field(default_factory=list)
    size: int = 0


def spread(image: StoredImage, source: Layout, target: Layout, scratch: Path, name: str) -> Descriptor:
    """Write `image` of `source` into `target` as `name`, with its files in other layers.

    `scratch` is an empty folder on a disk, where the image is unpacked. Raises CellblockError: not root, or
    an image without a dpkg database.
    """
    require_root("an image is unpacked with the owners of its files")
    root = scratch / "root"
    unpack(image, source, root, scratch)
    epoch = epoch_of(image)
    layers = list(_layers(root, epoch, target))
    configuration = replace(
        image.configuration,
        diff_ids=tuple(layer.diff_id for _, layer in layers),
        history=tuple(
            {"created": image.configuration.created, "created_by": f"cellblock: {each}"} for each, _ in layers
        ),
    )
    written = target.write(configuration.to_bytes(), image.manifest.config.media_type)
    manifest = replace(
        image.manifest, config=written, layers=tuple(layer.descriptor for _, layer in layers), subject=None
    )
    return target.add(manifest, configuration, [name]).descriptor


def unpack(image: StoredImage, source: Layout, root: Path, scratch: Path) -> None:
    """Write the merged tree of `image` to the new folder `root`. Raises CellblockError, OSError."""
    root.mkdir(mode=0o700)
    layers = [
        LayerBytes(each.digest, each.digest.removeprefix("sha256:"), opener(source.blob(each.digest)))
        for each in image.manifest.layers
    ]
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        target = Target(descriptor, max(2, len(os.sched_getaffinity(0))))
        with assembling(layers, target, lambda read: None, scratch) as assembly:
            assembly.run()
            assembly.seal()
    except ImageError as error:
        raise error.for_users("nothing was pushed") from error
    finally:
        os.close(descriptor)


def epoch_of(image: StoredImage) -> int:
    """Seconds of the image's date, after which none of its files is. Raises CellblockError without one."""
    created = image.configuration.created
    if created is None:
        raise CellblockError(
            "an image without a date of creation cannot be spread: what its build made is told by its time",
            hint="build it with `build.py build`, or push it without --spread",
        )
    return int(datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp())


def _layers(root: Path, epoch: int, target: Layout) -> Iterator[tuple[str, Layer]]:
    """Write the layers: what changes least first. (What is in it, the layer)."""
    groups, folders = _grouped(root, epoch)
    state = groups.pop(_STATE, _Group(_STATE))
    # With the folders' own times, which the last layer of an image decides about.
    last = store_entries(root, sorted([*state.files, *folders]), target, epoch, Compression())
    for path in folders:
        os.utime(os.fsencode(root) + b"/" + path, (_CONSTANT, _CONSTANT))
    for group in groups.values():
        for path in group.files:
            place = os.fsencode(root) + b"/" + path
            if os.lstat(place).st_mtime >= epoch:
                os.utime(place, (_CONSTANT, _CONSTANT), follow_symlinks=False)
        above = {parent for path in group.files for parent in _parents(path)}
        yield group.name, store_entries(root, sorted([*group.files, *above]), target, epoch, Compression())
    yield _STATE, last


def _parents(path: bytes) -> Iterator[bytes]:
    while path := path.rpartition(b"/")[0]:
        yield path


def _grouped(root: Path, epoch: int) -> tuple[dict[str, _Group], list[bytes]]:
    """The groups by name, in the order of their layers, and all folders of the tree."""
    with TreeAccess(os.fsencode(root)) as access:
        controls = databases.of_tree(access)
        database = Database(controls, linked_folders(access))
    if not database.installed:
        raise CellblockError(
            "an image without packages of dpkg cannot be spread: its layers are by package",
            hint="push it without --spread",
        )
    owners = {
        path: source_of(package)
        for key, package in database.installed.items()
        for path in database.files(key)
    }
    of_records = {key: source_of(package) for key, package in database.installed.items()}
    sizes: dict[str, int] = {}
    files: list[tuple[bytes, str, int]] = []
    folders: list[bytes] = []
    for path, status in _walk(os.fsencode(root)):
        if stat.S_ISDIR(status.st_mode):
            folders.append(path)
            continue
        owner = of_records.get(info_owner(path) or "")
        # What a build wrote over a package's file changes with builds, not with the package.
        if owner is None and status.st_mtime < epoch:
            owner = owners.get(path)
        if owner is None:
            owner = _STATE if path.startswith(_CHANGING) or path == b"usr/share/info/dir" else _OWN
        sizes[owner] = sizes.get(owner, 0) + status.st_size
        files.append((path, owner, status.st_size))
    large = {each for each, size in sizes.items() if size * _LARGE > sum(sizes.values())}
    groups: dict[str, _Group] = {}
    for path, owner, size in files:
        name = owner if owner in large or owner in (_OWN, _STATE) else shared_layer(owner)
        group = groups.setdefault(name, _Group(name))
        group.files.append(path)
        group.size += size
    return _ordered(groups), folders


def _ordered(groups: Mapping[str, _Group]) -> dict[str, _Group]:
    return dict(sorted(groups.items(), key=lambda pair: (pair[0] in (_OWN, _STATE), -pair[1].size, pair[0])))


def source_of(package: Package) -> str:
    """The source package, all binary packages of which are updated together (deb-control(5), Source)."""
    return (package.line("Source") or package.name).partition(" ")[0]


def shared_layer(source: str) -> str:
    """Return the name of the layer of a source package that is not large."""
    return f"packages {hashlib.sha256(source.encode()).digest()[0] % _SHARED}"


def packages_of_source(root: Path, source: str) -> list[str]:
    """The installed packages of a source package, as dpkg's records name them."""
    return [key for key, each in _installed(root).items() if source_of(each) == source]


def sources_of(root: Path) -> set[str]:
    """The source packages of all that is installed in an unpacked image."""
    return {source_of(each) for each in _installed(root).values()}


def _installed(root: Path) -> dict[str, Package]:
    return Database(databases.of_root(root), {}).installed


def _walk(root: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Every path of the unpacked image, relative to it, with its status."""
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted((*folders, *names)):
            place = folder + b"/" + name
            yield place[len(root) + 1 :], os.lstat(place)
