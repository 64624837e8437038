# SPDX-License-Identifier: Apache-2.0
"""Every kind of source makes the same tree; layers are merged as the OCI specification says."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import os
import subprocess
import sys
import tarfile
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from jail_trees import snapshot

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import assemble
from cellblock.jail.rollback import rollback
from cellblock.jail.source.find import find_source
from cellblock.jail.source.image import NOTE, ImageSource
from cellblock.jail.source.image_core import LayerBytes, Pick, Target, assembling
from cellblock.jail.source.stream import opener
from cellblock.jail.upgrade import plan_upgrade, upgrade
from cellblock.jail.volume.volume import Volume
from tests.jail.manifests import read_manifest
from tests.jail.source.oci_layouts import Layout, Member, layer

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")


def tar_of(root: Path, archive: Path) -> Path:
    """A tar by GNU tar, compressed as the name says."""
    xattrs = ("--format=posix", "--xattrs", "--xattrs-include=*", "--sparse", "--numeric-owner")
    plain = subprocess.run(
        ["tar", "-C", str(root), *xattrs, "-cf", "-", "."], check=True, capture_output=True
    )
    compress: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".zst": lambda data: (
            subprocess.run(["zstd", "-q"], input=data, check=True, capture_output=True).stdout
        ),
    }
    archive.write_bytes(compress.get(archive.suffix, bytes)(plain.stdout))
    return archive


def read_layers(layers: list[Path], folder: Path) -> dict[str, str]:
    """What layers are together, as `layer` writes it, by the image core without a tree."""
    aside = folder / "aside"
    aside.mkdir(exist_ok=True)
    listed = [LayerBytes(str(path), None, opener(path)) for path in layers]
    (folder / "manifest").unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_RDONLY)
    try:
        with assembling(listed, Target(descriptor, 2, pick=Pick(array("Q"))), lambda _: None, folder) as core:
            core.run()
            core.write_manifest(folder / "manifest")
    finally:
        os.close(descriptor)
    found = {}
    for entry in read_manifest(folder / "manifest"):
        text = {"d": "/", "l": f"->{entry.target.decode()}", "h": f"={entry.target.decode()}"}
        found[entry.path.decode()] = text.get(entry.kind) or (aside / entry.digest).read_text()
    return found


@needs_root
@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.tar.zst", "x.tar.xz"])
def test_a_tar_comes_through_exactly(everything: Path, tmp_path: Path, events: Events, name: str) -> None:
    everything.chmod(0o755)
    archive = tar_of(everything, tmp_path / name)
    result = assemble(str(archive), tmp_path / "volume", events)
    assert result.changed
    assert snapshot(tmp_path / "volume/root") == snapshot(everything)
    assert (tmp_path / "volume/root/sparse").stat().st_blocks * 512 < 100_000
    assert not assemble(str(archive), tmp_path / "volume", events).changed


@needs_root
def test_the_same_tar_under_another_name_changes_nothing(small: Path, tmp_path: Path, events: Events) -> None:
    archive = tar_of(small, tmp_path / "a.tar")
    assemble(str(archive), tmp_path / "volume", events)
    copy = tmp_path / "b.tar"
    copy.write_bytes(archive.read_bytes())
    assert not assemble(str(copy), tmp_path / "volume", events).changed


def test_a_tar_that_was_cut_off_is_refused(small: Path, tmp_path: Path) -> None:
    archive = tar_of(small, tmp_path / "a.tar")
    whole = archive.read_bytes().rstrip(b"\0")
    for length in (len(whole) // 512 * 512, 700, 512):
        archive.write_bytes(whole[:length])
        with pytest.raises(CellblockError, match=r"a\.tar"):
            read_layers([archive], tmp_path)
    archive.write_bytes(b"no tar at all" * 100)
    with pytest.raises(CellblockError, match="malformed tar: a header's checksum is wrong"):
        read_layers([archive], tmp_path)


def test_a_damaged_compressed_tar_is_refused(small: Path, tmp_path: Path) -> None:
    (small / "noise").write_bytes(os.urandom(100_000))
    for name in ("x.tar.gz", "x.tar.zst"):
        archive = tar_of(small, tmp_path / name)
        data = bytearray(archive.read_bytes())
        archive.write_bytes(data[: len(data) // 2])
        with pytest.raises(CellblockError, match=name):
            read_layers([archive], tmp_path)


@pytest.fixture
def merged(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Lays layers over each other; gives each path's content in the notation of `layer`."""

    def merge(*layers: list[Member]) -> dict[str, str]:
        return read_layers([layer(tmp_path / f"{n}.tar", *one) for n, one in enumerate(layers)], tmp_path)

    return merge


def test_a_later_layer_wins(merged: Callable[..., dict[str, str]]) -> None:
    assert merged([("a", "old"), ("b", "kept")], [("./a", "new")]) == {"": "/", "a": "new", "b": "kept"}


def test_whiteouts_remove_what_is_below(merged: Callable[..., dict[str, str]]) -> None:
    below = [("d", "/"), ("d/x", "1"), ("d/y", "2"), ("e", "/"), ("e/z", "3")]
    assert merged(below, [("d/.wh.x", "")]) == {"": "/", "d": "/", "d/y": "2", "e": "/", "e/z": "3"}
    assert merged(below, [(".wh.d", "")]) == {"": "/", "e": "/", "e/z": "3"}
    assert merged(below, [("d/.wh..wh..opq", ""), ("d/new", "4")]) == {
        "": "/",
        "d": "/",
        "d/new": "4",
        "e": "/",
        "e/z": "3",
    }
    assert merged(below, [(".wh.d", ""), ("d", "/"), ("d/y", "5")])["d/y"] == "5"


def test_a_file_in_place_of_a_directory_takes_its_content_along(
    merged: Callable[..., dict[str, str]],
) -> None:
    assert merged([("d", "/"), ("d/x", "1")], [("d", "->e")]) == {"": "/", "d": "->e"}
    assert merged([("d", "->e")], [("d", "/"), ("d/x", "1")]) == {"": "/", "d": "/", "d/x": "1"}


def test_hard_links_outlive_the_name_they_were_made_from(merged: Callable[..., dict[str, str]]) -> None:
    assert merged([("a", "one"), ("b", "=a"), ("c", "=a")]) == {"": "/", "a": "one", "b": "=a", "c": "=a"}
    assert merged([("a", "one"), ("b", "=a")], [(".wh.a", "")]) == {"": "/", "b": "one"}
    assert merged([("a", "one"), ("b", "=a")], [("a", "two")]) == {"": "/", "a": "two", "b": "one"}
    assert merged([("a", "one")], [("b", "=a")]) == {"": "/", "a": "one", "b": "=a"}


def test_missing_directories_are_made(merged: Callable[..., dict[str, str]]) -> None:
    assert merged([("a/b/c", "1")]) == {"": "/", "a": "/", "a/b": "/", "a/b/c": "1"}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("../evil", "x")], "leaves the archive's root"),
        ([("a/../../evil", "x")], "leaves the archive's root"),
        ([("a", "->/etc"), ("a/passwd", "x")], "/a: is no directory, and the archive has files below it"),
        ([("a", "=/etc/passwd")], "hard link to /etc/passwd, which is no file"),
    ],
)
def test_an_archive_cannot_reach_outside(tmp_path: Path, members: list[Member], message: str) -> None:
    with pytest.raises(CellblockError, match=message):
        read_layers([layer(tmp_path / "a.tar", *members)], tmp_path)


def test_a_textual_acl_is_refused_rather_than_lost(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a")
        info.pax_headers["SCHILY.acl.access"] = "user::rw-,user:ada:r--"
        archive.addfile(info)
    with pytest.raises(CellblockError, match="/a: its ACL is stored as text"):
        read_layers([tmp_path / "a.tar"], tmp_path)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A layout with one image of two layers, tagged `one`."""
    layout = Layout(tmp_path / "layout")
    release = (("etc/cellblock", "/"), ("etc/cellblock/jail-release", ""))
    first = layer(tmp_path / "1.tar", ("etc", "/"), ("etc/a", "1"), ("etc/b", "2"), *release)
    second = layer(tmp_path / "2.tar", ("etc/.wh.a", ""), ("etc/c", "3"))
    descriptor = layout.image(first.read_bytes(), gzip.compress(second.read_bytes()), tag="one")
    layout.index(descriptor)
    return layout


@needs_root
def test_a_layout_is_merged_and_labelled(layout: Layout, tmp_path: Path, events: Events) -> None:
    result = assemble(f"oci:{layout.folder}:one", tmp_path / "volume", events)
    assert (result.source.key, result.source.release) == ("k1", "24.11")
    assert sorted(path.name for path in (result.root / "etc").iterdir()) == ["b", "c", "cellblock"]
    assert not assemble(f"oci:{layout.folder}", tmp_path / "volume", events).changed


@needs_root
def test_an_image_of_cellblock_that_is_no_jail_is_refused(
    layout: Layout, tmp_path: Path, events: Events
) -> None:
    """One of a worker, say, which has a label of Slurm's release but not the file that a jail has."""
    worker = layer(tmp_path / "3.tar", ("etc", "/"), ("etc/a", "1")).read_bytes()
    layout.index(layout.image(worker, tag="worker"))
    volume = tmp_path / "volume"
    with pytest.raises(CellblockError, match=r"is no jail: it has no /etc/cellblock/jail-release"):
        assemble(f"oci:{layout.folder}:worker", volume, events)
    assert not (volume / "root").exists()
    assert not Volume(volume).leftovers()


@needs_root
def test_a_jail_is_upgraded_to_jails_alone(layout: Layout, tmp_path: Path, events: Events) -> None:
    volume = tmp_path / "volume"
    root = assemble(f"oci:{layout.folder}:one", volume, events).root
    worker = layer(tmp_path / "3.tar", ("etc", "/"), ("etc/a", "1")).read_bytes()
    layout.index(layout.image(worker, tag="worker"))
    for run in (plan_upgrade, lambda source, path: upgrade(source, path, events)):
        with pytest.raises(CellblockError, match=r"is no jail: .* nothing was changed"):
            run(f"oci:{layout.folder}:worker", volume)
    assert sorted(path.name for path in (root / "etc").iterdir()) == ["b", "c", "cellblock"]


def test_a_layout_says_which_tags_it_has(layout: Layout, tmp_path: Path) -> None:
    with pytest.raises(CellblockError, match=r"has no tag two\n.*its tags: one"):
        find_source(f"oci:{layout.folder}:two").identify(None)
    layout.index(layout.image(tag="one"), layout.image(tag="two"))
    with pytest.raises(CellblockError, match=r"holds 2 images; say which\n.*its tags: one, two"):
        find_source(f"oci:{layout.folder}").identify(None)
    with pytest.raises(CellblockError, match=r"is an OCI layout\n.*say so: oci:"):
        find_source(str(layout.folder))


def test_attestations_beside_an_image_are_no_images(layout: Layout) -> None:
    image = layout.image(tag="one")
    beside = layout.image(tag="")
    del beside["annotations"]
    layout.index({**beside, "artifactType": "application/vnd.in-toto+json"}, image)
    alone = find_source(f"oci:{layout.folder}").identify(None)
    assert alone.id == find_source(f"oci:{layout.folder}:one").identify(None).id


@needs_root
def test_a_damaged_or_missing_blob_is_named(layout: Layout, tmp_path: Path, events: Events) -> None:
    blob = max((layout.folder / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    blob.write_bytes(blob.read_bytes() + b"\0")
    with pytest.raises(CellblockError, match=f"{blob.name}: damaged"):
        assemble(f"oci:{layout.folder}", tmp_path / "volume", events)
    blob.unlink()
    with pytest.raises(CellblockError, match=f"the blob sha256:{blob.name} is missing"):
        assemble(f"oci:{layout.folder}", tmp_path / "volume", events)
    assert not (tmp_path / "volume/root").exists()


def test_what_a_source_is_follows_from_how_it_is_written(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jail").mkdir()
    assert isinstance(find_source("jail"), ImageSource)
    assert not isinstance(find_source("./jail"), ImageSource)
    assert isinstance(find_source("localhost/x.tar:1"), ImageSource)
    with pytest.raises(CellblockError, match="there is no /no/such to assemble from"):
        find_source("/no/such")


@needs_root
@pytest.mark.integration
class TestImages:
    """With podman and buildah."""

    REFERENCE = f"localhost/cellblock-test/jail:{os.getpid()}"

    @pytest.fixture(autouse=True)
    def image(self, everything: Path, request: pytest.FixtureRequest) -> str:
        """An image that holds `everything`; gone afterwards."""

        def run(*command: str) -> str:
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

        everything.chmod(0o755)
        container = run("buildah", "from", "scratch")
        run("cp", "-a", f"{everything}/.", run("buildah", "mount", container))
        run("buildah", "config", "--label", "org.cellblock.key=abc", container)
        run("buildah", "commit", container, self.REFERENCE)
        run("buildah", "rm", container)
        request.addfinalizer(lambda: run("buildah", "rmi", "--force", self.REFERENCE))
        return self.REFERENCE

    def test_an_image_comes_through_and_is_unmounted(
        self, everything: Path, tmp_path: Path, events: Events
    ) -> None:
        result = assemble(self.REFERENCE, tmp_path / "volume", events)
        assert result.source.key == "abc"
        assert self.held(tmp_path / "volume/root") == self.held(everything)
        assert self.REFERENCE not in self.mounts()
        assert not assemble(self.REFERENCE, tmp_path / "volume", events).changed

    def test_a_killed_run_leaves_no_mount_once_the_next_is_through(
        self, tmp_path: Path, events: Events
    ) -> None:
        script = (
            "import os, sys; from pathlib import Path; from cellblock.events import Events\n"
            "from cellblock.jail.assemble import assemble\n"
            "from cellblock.jail.source.image_core import Assembly\n"
            "Assembly.run = lambda self: os.kill(os.getpid(), 9)\n"
            "assemble(sys.argv[1], Path(sys.argv[2]), Events())"
        )
        subprocess.run([sys.executable, "-c", script, self.REFERENCE, str(tmp_path / "volume")], check=False)
        assert self.REFERENCE in self.mounts()
        assemble(self.REFERENCE, tmp_path / "volume", events)
        assert self.REFERENCE not in self.mounts()
        assert Volume(tmp_path / "volume").leftovers() == []

    @pytest.mark.parametrize("what", ["plan_upgrade(source, volume)", "upgrade(source, volume, Events())"])
    def test_neither_does_a_killed_plan_or_upgrade(
        self, small: Path, tmp_path: Path, events: Events, what: str
    ) -> None:
        volume = tmp_path / "volume"
        assemble(str(small), volume, events)
        script = (
            "import os, sys; from pathlib import Path; from cellblock.events import Events\n"
            "from cellblock.jail.source.image_core import Assembly\n"
            "from cellblock.jail.upgrade import plan_upgrade, upgrade\n"
            "Assembly.run = lambda self: os.kill(os.getpid(), 9)\n"
            f"source, volume = sys.argv[1], Path(sys.argv[2]); {what}"
        )
        subprocess.run([sys.executable, "-c", script, self.REFERENCE, str(volume)], check=False)
        assert self.REFERENCE in self.mounts()
        if what.startswith("plan"):
            # Of all folders of plans, for other tests may have some at this moment.
            (folder,) = self.folders_with_image()
            os.utime(folder, (0, 0))
            plan_upgrade(self.REFERENCE, volume)
            assert not folder.exists()
        else:
            with pytest.raises(CellblockError, match="no upgrade to undo"):
                rollback(volume, events)
        assert self.REFERENCE not in self.mounts()

    def test_an_unknown_image_says_where_to_look(self, tmp_path: Path, events: Events) -> None:
        with pytest.raises(CellblockError, match="there is no image localhost/no/such:1"):
            assemble("localhost/no/such:1", tmp_path / "volume", events)

    @staticmethod
    def held(root: Path) -> dict[bytes, tuple[object, ...]]:
        """What containers-storage keeps of a tree: layers there have whole seconds and no ACLs."""
        held = {}
        for path, (mode, uid, gid, _, device, content, xattrs, *links) in snapshot(root).items():
            kept = [pair for pair in xattrs if not pair[0].startswith("system.")]  # type: ignore[attr-defined]
            held[path] = (mode, uid, gid, device, content, kept, *links)
        return held

    def folders_with_image(self) -> list[Path]:
        """Those of plans of this image."""
        inspect = ["podman", "image", "inspect", "--format={{.Id}}", self.REFERENCE]
        number = subprocess.run(inspect, check=True, capture_output=True, text=True).stdout.strip()
        found = []
        for note in Path("/var/tmp").glob(f"cellblock-plan-*/{NOTE}"):
            with contextlib.suppress(FileNotFoundError):  # another test's, which has just ended
                if note.read_text() == number:
                    found.append(note.parent)
        return found

    @staticmethod
    def mounts() -> str:
        """Of all images; podman fails when one of them is removed while it lists them, as other tests do."""
        for _ in range(20):
            done = subprocess.run(["podman", "image", "mount"], capture_output=True, text=True)
            if done.returncode == 0:
                return done.stdout
        raise AssertionError(done.stderr)
