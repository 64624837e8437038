# SPDX-License-Identifier: Apache-2.0
"""An image that is spread over layers by package is the same tree, and an update moves little of it."""

from __future__ import annotations

import os
import random
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import assemble
from cellblock.oci.layer import store_layer
from cellblock.oci.layout import Layout, StoredImage
from cellblock.oci.model import CONFIG, Configuration, Descriptor, Manifest, Platform
from cellblock.release.spreading import spread
from tests.jail.deb_trees import Deb, DebTree
from tests.jail.jail_trees import snapshot

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="unpacks images: needs root")

WEEK_S = 7 * 24 * 3600
FIRST = 1_750_000_000


def packages(updated: str = "") -> list[Deb]:
    """Eighty packages of 20 kB that do not shrink, and a large one."""
    found = []
    for number in range(80):
        name = f"package{number}"
        version = "2" if name == updated else "1"
        source = random.Random(name + version)
        content = source.randbytes(200_000 if number == 7 else 10_000).hex()
        found.append(Deb(name, version, {f"usr/lib/{name}.so": content}))
    return found


def built(tree: DebTree, epoch: int, layout: Layout, name: str) -> StoredImage:
    """An image of one layer, as a build at that time makes it."""
    listed = {
        path for each in (tree.root / "var/lib/dpkg/info").glob("*.list") for path in each.read_text().split()
    }
    for path in listed:
        place = tree.root / path.lstrip("/")
        if place.is_file():
            os.utime(place, (1_700_000_000, 1_700_000_000))
    layer = store_layer(tree.root, [], layout, epoch)
    created = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    configuration = Configuration(Platform("linux", "amd64"), (layer.diff_id,), {}, created)
    written = layout.write(configuration.to_bytes(), CONFIG)
    return layout.add(Manifest(written, (layer.descriptor,)), configuration, [name])


def spread_images(tmp_path: Path, *trees: tuple[DebTree, int]) -> list[StoredImage]:
    source, target = Layout(tmp_path / "built"), Layout(tmp_path / "spread")
    found = []
    for number, (tree, epoch) in enumerate(trees):
        image = built(tree, epoch, source, f"image{number}")
        scratch = tmp_path / f"scratch{number}"
        scratch.mkdir()
        found.append(target.stored(spread(image, source, target, scratch, f"image{number}")))
    return found


def layers_of(image: StoredImage) -> dict[str, Descriptor]:
    return {layer.digest: layer for layer in image.manifest.layers}


@pytest.fixture
def debs(tmp_path: Path) -> Path:
    folder = tmp_path / "debs"
    folder.mkdir()
    return folder


def test_an_update_of_one_package_moves_a_twentieth(debs: Path, tmp_path: Path) -> None:
    old = DebTree.make(tmp_path / "old", debs, *packages())
    subprocess.run(["cp", "-a", str(old.root), str(tmp_path / "new")], check=True)
    new = DebTree(tmp_path / "new", debs)
    new.install(*(each for each in packages(updated="package3") if each.version == "2"))
    first, second = spread_images(tmp_path, (old, FIRST), (new, FIRST + WEEK_S))
    moved = sum(layer.size for digest, layer in layers_of(second).items() if digest not in layers_of(first))
    assert moved / second.size < 0.05
    assert len(second.manifest.layers) < 100  # engines end at 127


def test_the_tree_is_the_same_but_for_times_of_what_the_build_made(debs: Path, tmp_path: Path) -> None:
    tree = DebTree.make(tmp_path / "tree", debs, *packages()[:6])
    (tree.root / "etc/of-no-package").write_text("the image's\n")
    os.chown(tree.root / "opt", 100, 44)
    (tree.root / "opt").chmod(0o2775)
    os.link(tree.root / "usr/lib/package1.so", tree.root / "usr/lib/a-second-name")
    spread_images(tmp_path, (tree, FIRST))
    for name in ("built", "spread"):
        assemble(f"oci:{tmp_path / name}:image0", tmp_path / f"volume-{name}", Events())

    def timeless(root: Path) -> dict[bytes, tuple[object, ...]]:
        return {path: (*seen[:3], *seen[4:7]) for path, seen in snapshot(root).items()}

    assert timeless(tmp_path / "volume-spread/root") == timeless(tmp_path / "volume-built/root")
    program = tmp_path / "volume-spread/root/usr/bin/package1"
    assert program.stat().st_mtime == 1_700_000_000  # programs compare times of these


def test_the_same_image_gives_the_same_layers(debs: Path, tmp_path: Path) -> None:
    trees = [DebTree.make(tmp_path / name, debs, *packages()[:4]) for name in ("one", "two")]
    first, second = spread_images(tmp_path, *((tree, FIRST) for tree in trees))
    assert first.digest == second.digest


def test_what_is_no_image_of_packages_is_refused(tmp_path: Path) -> None:
    tree = DebTree(tmp_path / "tree", tmp_path)
    (tree.root / "usr").mkdir(parents=True)
    (tree.root / "usr/file").touch()
    with pytest.raises(CellblockError, match="without packages of dpkg cannot be spread"):
        spread_images(tmp_path, (tree, FIRST))
