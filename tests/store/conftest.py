# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the cache: a small one with layers, images and debs of a given age."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from cellblock.events import Events
from cellblock.lock.model import LockedPackage
from cellblock.oci.layer import store_layer
from cellblock.oci.layout import Layout
from cellblock.oci.model import (
    CONFIG,
    LAYER_ZSTD,
    Configuration,
    Descriptor,
    Manifest,
    Platform,
    digest_of_bytes,
)
from cellblock.packages.store import PackageStore
from cellblock.store.record import LayerRecord
from tests.packages.small_archive import SmallArchive

NOW = 1_700_000_000


@dataclass
class SmallCache:
    """What builds leave below `folder`, of a few kilobytes, made within milliseconds."""

    folder: Path

    @property
    def layout(self) -> Layout:
        return Layout(self.folder / "images")

    @property
    def store(self) -> PackageStore:
        return PackageStore(self.folder / "debs")

    def layer(self, name: str, size: int = 1000, *, hours_ago: float = 0, files: int = 1) -> LayerRecord:
        """A layer with its tree (of the folder `name`), record and blob."""
        tree = self.folder / "trees" / name
        for number in range(files):
            path = tree / name / str(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(size))
        made = store_layer(tree, [], self.layout, NOW)
        record = LayerRecord(
            "packages",
            name,
            name * 2,
            made.descriptor.digest,
            made.diff_id,
            made.descriptor.size,
            made.uncompressed,
        )
        path = self.folder / "layers" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(asdict(record)))
        set_time(path, hours_ago)
        return record

    def image(self, name: str, *layers: LayerRecord, hours_ago: float = 0) -> str:
        """An image of layers; its digest."""
        configuration = Configuration(
            Platform("linux", "amd64"), tuple(layer.diff_id for layer in layers), {"Labels": {"name": name}}
        )
        data = configuration.to_bytes()
        manifest = Manifest(
            Descriptor(CONFIG, digest_of_bytes(data), len(data)),
            tuple(Descriptor(LAYER_ZSTD, layer.digest, layer.size) for layer in layers),
        )
        made = self.layout.add(manifest, configuration, (f"{name}:v", f"{name}:v.key-1"))
        set_time(self.layout.blob(made.digest), hours_ago)
        return made.digest

    def deb(self, name: str, size: int = 1000, *, hours_ago: float = 0) -> LockedPackage:
        archive = SmallArchive(self.folder.parent / "archive")
        package = archive.add(name, size=size)
        self.fetch(package)
        set_time(self.store.path(package), hours_ago)
        return package

    def fetch(self, package: LockedPackage) -> None:
        self.store.fetch([package], [SmallArchive(self.folder.parent / "archive").archive], Events())

    def trees(self) -> set[str]:
        return {path.name for path in (self.folder / "trees").glob("*")}

    def images(self) -> set[str]:
        return {name.partition(":")[0] for name in self.layout.references()}


def set_time(path: Path, hours_ago: float) -> None:
    os.utime(path, (NOW - hours_ago * 3600, NOW - hours_ago * 3600))


def damage(path: Path) -> None:
    """Change a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.fixture
def cache(tmp_path: Path) -> SmallCache:
    return SmallCache(tmp_path / "cache")
