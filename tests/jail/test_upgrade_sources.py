# SPDX-License-Identifier: Apache-2.0
"""An upgrade from every kind of source, which reads no layer that the volume knows."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deb_trees import Deb, DebTree
from jail_trees import snapshot

from cellblock.bench.inputs.volume_sources import TAR, Layout
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import assemble
from cellblock.jail.changes import changes
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import plan_upgrade, upgrade
from cellblock.jail.verify import verify
from cellblock.jail.volume.volume import Volume
from tests.integration.registry import running_registry

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")


class Images:
    """Layers and images of them; `volume` is where a test assembles."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.layout = Layout(folder / "layout")
        self.volume = folder / "volume"
        self.root = self.volume / "root"

    def layer(self, name: str, **files: str) -> Path:
        """A tar of files, whose names have `__` for `/`; a name in capitals is a whiteout's."""
        top = self.folder / name
        for path, text in files.items():
            target = top / path.replace("__", "/")
            if target.name.isupper():
                target = target.with_name(f".wh.{target.name.lower()}")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            os.utime(target, ns=(0, 1_700_000_000_000_000_000))
        return self.packed(top)

    def packed(self, top: Path) -> Path:
        archive = self.folder / f"{top.name}.tar"
        subprocess.run([*TAR, "-C", str(top), "-cf", str(archive), "."], check=True)
        return archive

    def image(self, tag: str, *layers: Path, settings: tuple[str, ...] = ()) -> str:
        self.layout.add(tag, *layers, settings=settings)
        return f"oci:{self.layout.folder}:{tag}"

    def layer_path(self, archive: Path) -> Path:
        """The layer that was made of this tar."""
        layer = subprocess.run(
            ["zstd", "-q", "-3", "-T0", "-c", str(archive)], capture_output=True, check=True
        )
        return self.folder / "layout/blobs/sha256" / hashlib.sha256(layer.stdout).hexdigest()

    @contextmanager
    def unsupported(self, *layers: Path) -> Iterator[None]:
        """Who reads one of these layers meanwhile finds it damaged."""
        kept = {place: place.read_bytes() for place in map(self.layer_path, layers)}
        for place in kept:
            place.write_bytes(b"damaged")
        yield
        for place, data in kept.items():
            place.write_bytes(data)

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): path.read_text()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path)


def test_only_layers_that_are_new_are_read(images: Images, events: Events) -> None:
    base = images.layer("base", usr__a="1", usr__b="2", usr__c="3")
    one, two = images.layer("one", usr__e="5"), images.layer("two", usr__c="33", usr__A="", usr__d="4")
    assemble(images.image("old", base, one), images.volume, events)
    with images.unsupported(base, one):
        new = images.image("new", base, two)
        plan = plan_upgrade(new, images.volume)
        assert upgrade(new, images.volume, events).plan.same_as(plan) == []
        assert images.files() == {"usr/b": "2", "usr/c": "33", "usr/d": "4"}
        assert verify(images.volume, events, content=True).is_clean
    rollback(images.volume, events)
    assert images.files() == {"usr/a": "1", "usr/b": "2", "usr/c": "3", "usr/e": "5"}


def test_another_image_of_the_same_layers_is_read_not_at_all(images: Images, events: Events) -> None:
    base, one = images.layer("base", usr__a="1"), images.layer("one", usr__b="2")
    assemble(images.image("old", base, one), images.volume, events)
    before = snapshot(images.root)
    with images.unsupported(base, one):
        new = images.image("new", base, one, settings=("A=1",))
        assert upgrade(new, images.volume, events).changed
        assert not upgrade(new, images.volume, events).changed
    assert snapshot(images.root) == before


def test_what_another_layer_hid_is_read_when_it_is_to_be_seen(images: Images, events: Events) -> None:
    base, hiding = images.layer("base", usr__a="1", usr__b="2"), images.layer("hiding", usr__A="")
    assemble(images.image("old", base, hiding), images.volume, events)
    new = images.image("new", base)
    with images.unsupported(base), pytest.raises(CellblockError, match="cut off"):
        upgrade(new, images.volume, events)
    assert images.files() == {"usr/b": "2"}
    upgrade(new, images.volume, events)
    assert images.files() == {"usr/a": "1", "usr/b": "2"}


@pytest.mark.parametrize("damage", ["cut", "bit", "form", "empty"])
def test_a_listing_that_is_damaged_is_as_good_as_none(images: Images, events: Events, damage: str) -> None:
    base, one = images.layer("base", usr__a="1" * 500), images.layer("one", usr__b="2")
    assemble(images.image("old", base), images.volume, events)
    (listing,) = (images.volume / ".cellblock/layers").iterdir()
    data = bytearray(listing.read_bytes())
    if damage == "bit":
        data[len(data) // 2] ^= 1
    if damage == "form":
        data[:25] = b"cellblock-layer-listing 9"
    listing.write_bytes({"cut": bytes(data[:-40]), "empty": b""}.get(damage, bytes(data)))
    upgrade(images.image("new", base, one), images.volume, events)
    assert images.files() == {"usr/a": "1" * 500, "usr/b": "2"}
    assert verify(images.volume, events, content=True).is_clean


def test_a_file_that_moved_is_taken_from_the_tree(images: Images, events: Events) -> None:
    base, moved = images.layer("base", usr__a="1", usr__b="2"), images.layer("moved", usr__A="", usr__z="1")
    assemble(images.image("old", base, images.layer("z", usr__z="0")), images.volume, events)
    new = images.image("new", base, moved)
    with images.unsupported(base):
        upgrade(new, images.volume, events)
    assert images.files() == {"usr/b": "2", "usr/z": "1"}


def test_users_files_under_what_moved_are_not_taken_for_the_images(images: Images, events: Events) -> None:
    """The content is looked up by its digest: a file that users changed does not have it."""
    base, moved = images.layer("base", usr__a="1", usr__b="2"), images.layer("moved", usr__z="1")
    assemble(images.image("old", base), images.volume, events)
    (images.root / "usr/a").write_text("theirs")
    upgrade(images.image("new", base, moved), images.volume, events)
    assert images.files() == {"usr/a": "theirs", "usr/b": "2", "usr/z": "1"}


@pytest.mark.parametrize("kind", ["archive", "tar", "tar.gz", "tar.xz", "directory", "registry"])
def test_every_source_of_assemble_is_one_of_upgrade(
    images: Images, everything: Path, events: Events, kind: str
) -> None:
    """With all that a tree can hold."""
    everything.chmod(0o755)
    archive = images.packed(everything)
    assemble(images.image("old", images.layer("base", usr__a="1")), images.volume, events)
    if kind == "registry":
        new = images.image("new", archive)
        with running_registry(images.folder / "registry") as registry:
            copy = [
                "skopeo",
                "copy",
                "-q",
                "--dest-tls-verify=false",
                new,
                f"docker://{registry.host}/jail:1",
            ]
            subprocess.run(copy, check=True)
            upgrade(f"docker://{registry.host}/jail:1", images.volume, events)
    else:
        upgrade(source_of(kind, images, everything, archive), images.volume, events)
    found, expected = snapshot(images.root), snapshot(everything)
    for path, one in expected.items():
        # A directory's time is users' business.
        shown = [
            (each[:3], each[4:]) if str(each[0]).startswith("0o4") else each for each in (one, found[path])
        ]
        assert shown[1] == shown[0], path
    assert not (images.root / "usr/a").exists()
    assert verify(images.volume, events, content=True).is_clean


def source_of(kind: str, images: Images, top: Path, archive: Path) -> str:
    if kind == "archive":
        images.image("new", archive)
        with tarfile.open(images.folder / "image.tar", "w") as packed:
            packed.add(images.layout.folder, ".")
        return f"oci-archive:{images.folder / 'image.tar'}:new"
    if kind == "tar.gz":
        (images.folder / "x.tar.gz").write_bytes(gzip.compress(archive.read_bytes()))
    if kind == "tar.xz":
        with (images.folder / "x.tar.xz").open("wb") as file:
            subprocess.run(["xz", "-1", "-c", str(archive)], stdout=file, check=True)
    return str({"directory": top, "tar": archive}.get(kind, images.folder / f"x.{kind}"))


class TestLostDatabases:
    """Of a form without a copy of the image's databases."""

    @pytest.fixture
    def jail(self, images: Images, events: Events) -> Path:
        """The old image; the new one is `new` beside it. The volume's copy of the databases is gone."""
        debs = images.folder / "debs"
        debs.mkdir()
        old = DebTree.make(images.folder / "old", debs, Deb("foo", "1"))
        DebTree.make(images.folder / "new", debs, Deb("foo", "2"))
        assemble(str(old.root), images.volume, events)
        (images.volume / ".cellblock/controls").unlink()
        return old.root

    def test_untouched_it_is_upgraded(self, images: Images, jail: Path, events: Events) -> None:
        upgrade(str(images.folder / "new"), images.volume, events)
        assert DebTree(images.root, images.folder / "debs").versions() == {"foo": "2"}

    def test_users_packages_survive_for_the_image_is_asked(
        self, images: Images, jail: Path, events: Events
    ) -> None:
        tree = DebTree(images.root, images.folder / "debs")
        tree.install(Deb("mine", "1"))
        upgrade(str(images.folder / "new"), images.volume, events)
        assert tree.versions() == {"foo": "2", "mine": "1"}
        tree.check()

    def test_without_the_image_it_says_what_to_do_and_that_works(
        self, images: Images, jail: Path, events: Events
    ) -> None:
        tree = DebTree(images.root, images.folder / "debs")
        tree.install(Deb("mine", "1"))
        moved = jail.rename(images.folder / "moved")
        new = str(images.folder / "new")
        before = snapshot(images.root)
        for act in (
            lambda: upgrade(new, images.volume, events),
            lambda: plan_upgrade(new, images.volume),
            lambda: verify(images.volume, events),
            lambda: list(changes(images.volume)),
        ):
            with pytest.raises(CellblockError, match=r"controls is missing(.|\n)*--repair --source IMAGE"):
                act()
        assert snapshot(images.root) == before
        verify(images.volume, events, repair=True, source=str(moved))
        upgrade(new, images.volume, events)
        assert tree.versions() == {"foo": "2", "mine": "1"}
        state = Volume(images.volume).state()
        assert state is not None
        assert state.source.reference == new
