# SPDX-License-Identifier: Apache-2.0
"""The tree of an imported image is the one that umoci unpacks: byte for byte, mode for mode."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.enroot.importing.conftest import (
    Importer,
    mounted,
    unpack_by_umoci,
    unpack_by_unsquashfs,
)
from tests.enroot.importing.layouts import LayerTar, every_kind, write_layout
from tests.enroot.importing.trees import Entry, read_tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="devices, capabilities and mounts need root")


def differences(
    ours: dict[bytes, Entry], theirs: dict[bytes, Entry]
) -> list[tuple[bytes, Entry | None, Entry | None]]:
    names = ours.keys() | theirs.keys()
    if b"etc" not in theirs:
        names -= {b"etc"}  # it is there for the files that the import makes
    return [
        (name, ours.get(name), theirs.get(name))
        for name in sorted(names)
        if ours.get(name) != theirs.get(name)
    ]


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[bytes], dict[bytes, Entry]]:
    """Layers with all there is, and the tree that umoci makes of them."""
    folder = tmp_path_factory.mktemp("kinds")
    layers = every_kind()
    layout = write_layout(folder / "layout", layers)
    return layers, read_tree(unpack_by_umoci(layout, folder / "unpacked"))


@pytest.mark.parametrize("how", ["gzip", "zstd", "plain"])
def test_every_kind_of_entry_and_whiteout(
    importer: Importer, kinds: tuple[list[bytes], dict[bytes, Entry]], how: str, tmp_path: Path
) -> None:
    layers, expected = kinds
    layout = write_layout(tmp_path / "layout", layers, how=how)
    image = importer.image(f"oci:{layout}")
    assert differences(read_tree(unpack_by_unsquashfs(image, tmp_path / "unpacked")), expected) == []


@pytest.mark.parametrize(
    "options",
    [
        "-comp zstd -Xcompression-level 1 -b 4K",
        "-comp lz4 -b 1M -always-use-fragments",
        "-comp gzip -no-fragments -no-exports",
        "-no-compression",
        "-comp lzo -noD -exit-on-error",
    ],
)
def test_every_reader_understands_every_option(
    importer: Importer, kinds: tuple[list[bytes], dict[bytes, Entry]], options: str, tmp_path: Path
) -> None:
    layers, expected = kinds
    layout = write_layout(tmp_path / "layout", layers)
    image = importer.image(f"oci:{layout}", env={"ENROOT_SQUASH_OPTIONS": options})
    assert differences(read_tree(unpack_by_unsquashfs(image, tmp_path / "unpacked")), expected) == []
    with mounted(image, tmp_path / "kernel", "kernel") as folder:
        assert differences(read_tree(folder), expected) == []
    # Its inodes have no numbers that tell links apart, and it calls the attributes "security." by "trusted.".
    plain = {name: dataclasses.replace(entry, links=(), xattrs=()) for name, entry in expected.items()}
    with mounted(image, tmp_path / "fuse", "squashfuse") as folder:
        read = read_tree(folder, xattrs=False)
        found = {name: dataclasses.replace(entry, links=()) for name, entry in read.items()}
        assert differences(found, plain) == []


def test_owners_are_root_and_links_are_counted(
    importer: Importer, kinds: tuple[list[bytes], dict[bytes, Entry]], tmp_path: Path
) -> None:
    layout = write_layout(tmp_path / "layout", kinds[0])
    with mounted(importer.image(f"oci:{layout}"), tmp_path / "mount", "kernel") as folder:
        for path in folder.rglob("*"):
            status = path.lstat()
            assert (status.st_uid, status.st_gid) == (0, 0)
        assert (folder / "a/kept").stat().st_nlink == 3
        assert (folder / "a").stat().st_nlink == 2
        assert folder.stat().st_nlink == 2 + sum(
            stat.S_ISDIR(path.lstat().st_mode) for path in folder.iterdir()
        )


def test_a_hundred_thousand_files_in_many_layers(importer: Importer, tmp_path: Path) -> None:
    """Listings longer than a piece of metadata, runs longer than a head may have, numbers far apart."""
    source = random.Random(6)
    expected: dict[str, int] = {}
    layers = []
    for layer in range(20):
        tar = LayerTar()
        tar.folder(f"d{layer}")
        tar.file(f"d{layer}/first", b"linked")
        tar.hardlink(f"far-{layer}", f"d{layer}/first")
        for i in range(5000):
            name = f"d{layer}/{i:05}{'x' * source.randrange(40)}"
            tar.file(name, bytes(i % 7))
            expected[name] = i % 7
        if layer:
            hidden = next(name for name in expected if name.startswith(f"d{layer - 1}/"))
            tar.file(hidden.replace("/", "/.wh."))
            del expected[hidden]
        layers.append(tar.finish())
    layout = write_layout(tmp_path / "layout", layers, how="plain")
    image = importer.image(f"oci:{layout}")
    with mounted(image, tmp_path / "mount", "kernel") as folder:
        found = {
            f"{part.name}/{file.name}": file.stat().st_size
            for part in os.scandir(folder)
            if part.name[0] == "d"
            for file in os.scandir(part)
            if file.name != "first"
        }
        links = [
            (folder / f"far-{i}").stat().st_ino == (folder / f"d{i}/first").stat().st_ino for i in range(20)
        ]
    assert found == expected
    assert all(links)


def test_sparse_files_stay_sparse(importer: Importer, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    with (tree / "sparse").open("wb") as file:
        file.seek(5 << 30)
        file.write(b"far")
        file.seek(100_000)
        file.write(b"near")
        file.truncate((6 << 30) + 1)
    (tree / "all-hole").touch()
    os.truncate(tree / "all-hole", 3_000_000)
    command = ["tar", "--sparse", "--format=pax", "-C", str(tree), "-cf", "-", "."]
    layer = subprocess.run(command, capture_output=True, check=True).stdout
    image = importer.image(f"oci:{write_layout(tmp_path / 'layout', [layer])}")
    assert image.stat().st_size < 200_000
    with mounted(image, tmp_path / "mount", "kernel") as folder:
        for name in ("sparse", "all-hole"):
            assert (folder / name).stat().st_size == (tree / name).stat().st_size
            assert (folder / name).stat().st_blocks < 10_000
        with (folder / "sparse").open("rb") as file:
            assert file.read(100_004)[-5:] == b"\0near"
            file.seek(5 << 30)
            assert file.read(4) == b"far\0"


def test_images_of_buildah(importer: Importer, tmp_path: Path) -> None:
    """As a layout and as an archive of docker's kind, with the media types of both."""
    if not shutil.which("buildah"):
        pytest.skip("buildah is not installed")
    graph = [f"--root={tmp_path}/graph", f"--runroot={tmp_path}/run", "--storage-driver=vfs"]

    def buildah(*words: str) -> str:
        return subprocess.run(
            ["buildah", *graph, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    source = tmp_path / "source"
    (source / "folder").mkdir(parents=True)
    (source / "folder/file").write_text("of the first layer")
    (source / "program").write_bytes(bytes(range(256)) * 1000)
    subprocess.run(["setcap", "cap_net_raw+ep", str(source / "program")], check=True)
    container = buildah("from", "scratch")
    buildah("add", container, str(source), "/")
    buildah("config", "--env", "A=b", "--entrypoint", '["/program"]', container)
    buildah("commit", container, "first")
    container = buildah("from", "localhost/first")
    root = Path(buildah("mount", container))
    (root / "folder/file").unlink()
    (root / "second").write_text("of the second layer")
    buildah("commit", "--format=docker", container, "second")
    buildah("push", "second", f"oci:{tmp_path}/layout:test")
    buildah("push", "second", f"docker-archive:{tmp_path}/image.tar:localhost/second:1")
    buildah("push", "second", f"oci-archive:{tmp_path}/oci.tar:test")
    expected = read_tree(unpack_by_umoci(tmp_path / "layout", tmp_path / "umoci"))
    assert b"second" in expected
    assert b"folder/file" not in expected
    for i, uri in enumerate(
        (
            f"oci:{tmp_path}/layout",
            f"docker-archive:{tmp_path}/image.tar",
            f"oci-archive:{tmp_path}/oci.tar:test",
        )
    ):
        image = importer.image(uri)
        assert differences(read_tree(unpack_by_unsquashfs(image, tmp_path / f"unpacked{i}")), expected) == []


def test_dev_is_empty_so_that_users_create_in_silence(importer: Importer, tmp_path: Path) -> None:
    """Its device nodes are what no user can make, and the container has the host's /dev."""
    layer, above = LayerTar(), LayerTar()
    layer.folder("dev", 0o700)
    layer.add("dev/null", tarfile.CHRTYPE, mode=0o666, major=1, minor=3)
    layer.add("dev/mapper/root", tarfile.BLKTYPE, mode=0o660, major=254, minor=0)
    layer.file("file", b"x")
    above.add("dev/console", tarfile.CHRTYPE, mode=0o600, major=5, minor=1)
    layout = write_layout(tmp_path / "layout", [layer.finish(), above.finish()])
    image = importer.image(f"oci:{layout}")
    tmp_path.chmod(0o755)
    folder = tmp_path / "users"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with image.open("rb") as file:
        unpack = [*become, "unsquashfs", "-quiet", "-no-progress", "-dest", "root", "/proc/self/fd/0"]
        done = subprocess.run(unpack, capture_output=True, text=True, cwd=folder, stdin=file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stat.S_IMODE((folder / "root/dev").stat().st_mode) == 0o755
    assert "[WARN]" not in importer("load", "-n", "loaded", f"oci:{layout}").stderr
    for root in (folder / "root", importer.folder / "data/loaded"):
        assert sorted(path.name for path in root.iterdir()) == ["dev", "etc", "file"]
        assert list((root / "dev").iterdir()) == []


def test_load_gives_the_same_tree(
    importer: Importer, kinds: tuple[list[bytes], dict[bytes, Entry]], tmp_path: Path
) -> None:
    layers, expected = kinds
    layout = write_layout(tmp_path / "layout", layers)
    done = importer("load", "-n", "loaded", f"oci:{layout}")
    assert done.returncode == 0, done.stderr
    assert differences(read_tree(importer.folder / "data/loaded"), expected) == []
    assert importer("load", "-n", "loaded", f"oci:{layout}").returncode == 1
    assert importer("load", "-f", "-n", "loaded", f"oci:{layout}").returncode == 0
    assert [path.name for path in (importer.folder / "data").iterdir()] == ["loaded"]


def test_the_same_image_twice_is_the_same_file(importer: Importer, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", every_kind())
    first = importer.image(f"oci:{layout}", "1.sqsh", env={"ENROOT_MAX_PROCESSORS": "1"})
    second = importer.image(f"oci:{layout}", "2.sqsh", env={"ENROOT_MAX_PROCESSORS": "7"})
    assert first.read_bytes() == second.read_bytes()
    dated = importer.image(f"oci:{layout}", "3.sqsh", env={"SOURCE_DATE_EPOCH": "1000"})
    listing = subprocess.run(
        ["unsquashfs", "-stat", str(dated)], capture_output=True, text=True, check=True
    ).stdout
    assert "Thu Jan  1 " in listing
    newest = max(entry.mtime for entry in read_tree(unpack_by_unsquashfs(dated, tmp_path / "dated")).values())
    assert newest == 1000


def test_layouts_say_what_is_wrong(importer: Importer, tmp_path: Path) -> None:
    layout = write_layout(tmp_path / "layout", every_kind())
    manifest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    layers = json.loads((layout / "blobs/sha256" / manifest[7:]).read_text())["layers"]
    blob = layout / "blobs/sha256" / layers[0]["digest"][7:]
    whole = blob.read_bytes()
    for data, words in (
        (whole[:-100], "cut off"),
        (whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:], "damaged"),
    ):
        blob.write_bytes(data)
        done = importer("import", "-o", "bad.sqsh", f"oci:{layout}")
        assert done.returncode == 1
        assert words in done.stderr
        assert blob.name in done.stderr
    blob.unlink()
    done = importer("import", "-o", "bad.sqsh", f"oci:{layout}")
    assert "has no file" in done.stderr
    assert "there are: test" in importer("import", f"oci:{layout}:other").stderr
    assert "for amd64, not for arm64" in importer("import", "-a", "arm64", f"oci:{layout}").stderr
    assert not list(importer.folder.glob("*.sqsh"))
    assert list((importer.folder / "tmp").iterdir()) == []
