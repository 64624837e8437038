# SPDX-License-Identifier: Apache-2.0
"""Every source but a registry: layouts and archives of many images, and images of podman and docker."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cellblock.bench.harness.dockerd import private_dockerd
from cellblock.errors import CellblockError
from cellblock.oci.layer import Compression, store_layer
from cellblock.oci.layout import Layout
from cellblock.oci.model import CONFIG, Configuration, Descriptor, Manifest, Platform, digest_of_bytes
from tests.enroot.importing.archives import docker_archive
from tests.enroot.importing.conftest import Importer, unpack_by_umoci, unpack_by_unsquashfs
from tests.enroot.importing.layouts import LayerTar, write_layout
from tests.enroot.importing.test_trees import differences
from tests.enroot.importing.trees import read_tree
from tests.oci.layers import make_image, member

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="whiteouts of overlayfs and daemons need root")


def layer(*names: str) -> bytes:
    """A tar of files that hold their names."""
    tar = LayerTar()
    for name in names:
        tar.file(name, name.encode())
    return tar.finish()


BASE, ONE, TWO = layer("base"), layer("one"), layer("two")
IMAGES = {"lab.example/app:1": [BASE, ONE], "lab.example/app:2": [BASE, TWO], "debian:latest": [BASE]}


def files(image: Path, folder: Path) -> set[str]:
    """The names at the root of an image, but for what an import writes."""
    return {path.name for path in unpack_by_unsquashfs(image, folder).iterdir()} - {"dev", "etc"}


def build_of(folder: Path, lower: Path, upper: Path, compression: str) -> Path:
    """A layout as a build of Cellblock makes it, with the images `base` and, of both layers, `both`."""
    layout = Layout(folder)
    layers = [
        store_layer(tree, below, layout, 1_700_000_000, Compression.parse(compression))
        for tree, below in ((lower, ()), (upper, (lower,)))
    ]
    for name, used in (("base", layers[:1]), ("both", layers)):
        configuration = Configuration(
            Platform("linux", "amd64"), tuple(one.diff_id for one in used), {}, "1970-01-01T00:00:00Z"
        )
        data = configuration.to_bytes()
        config = Descriptor(CONFIG, digest_of_bytes(data), len(data))
        layout.add(Manifest(config, tuple(one.descriptor for one in used)), configuration, [name])
    return folder


@ONLY_ROOT
@pytest.mark.parametrize("compression", ["zstd", "gzip:1", "none"])
def test_images_of_cellblock(importer: Importer, tmp_path: Path, compression: str) -> None:
    """Layers as a build stores them: of the trees that overlayfs leaves, two images in one layout."""
    lower, upper = tmp_path / "lower", tmp_path / "upper"
    for folder in ("etc", "opaque", "usr/bin"):
        (lower / folder).mkdir(parents=True)
    (lower / "opaque/below").write_text("below")
    (lower / "usr/bin/program").write_bytes(bytes(range(256)) * 3000)
    (lower / "gone").write_text("gone")
    (lower / "é\n").write_text("a name")
    os.link(lower / "usr/bin/program", lower / "usr/bin/second")
    os.setxattr(lower / "gone", "user.comment", b"\0\xff")
    (upper / "opaque").mkdir(parents=True)
    (upper / "opaque/new").write_text("new")
    os.setxattr(upper / "opaque", "trusted.overlay.opaque", b"y")
    os.mknod(upper / "gone", stat.S_IFCHR, os.makedev(0, 0))
    ours = build_of(tmp_path / "layout", lower, upper, compression)
    # umoci of Debian 12 knows no zstd.
    plain = build_of(tmp_path / "plain", lower, upper, "none")
    for name in ("base", "both"):
        image = importer.image(f"oci:{ours}:{name}")
        expected = read_tree(unpack_by_umoci(plain, tmp_path / f"umoci-{name}", name))
        assert (b"gone" in expected) == (name == "base")
        assert differences(read_tree(unpack_by_unsquashfs(image, tmp_path / name)), expected) == []


def test_a_layout_of_several_images_wants_a_tag(importer: Importer, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    make_image(layout, "app:1", [member("one", "1")])
    second = make_image(layout, "app:2", [member("two", "2")])
    done = importer("import", f"oci:{layout.folder}")
    assert done.returncode == 1
    assert "several images; say which one behind a colon: app:1, app:2" in done.stderr
    assert files(importer.image(f"oci:{layout.folder}:app:1"), tmp_path / "1") == {"one"}
    assert files(importer.image(f"oci:{layout.folder}:app:2"), tmp_path / "2") == {"two"}
    assert "there are: app:1, app:2" in importer("import", f"oci:{layout.folder}:app:3").stderr
    # Two names of one image are no question.
    layout.tag(second.descriptor, ["app:1", "other"])
    assert files(importer.image(f"oci:{layout.folder}"), tmp_path / "3") == {"two"}


def test_what_is_no_image_in_a_layout(importer: Importer, tmp_path: Path) -> None:
    """Signatures and charts have manifests too. One that lies beside an image is no second one."""
    folder = write_layout(tmp_path / "layout", [BASE], tag="1")
    index = json.loads((folder / "index.json").read_text())

    def store(data: bytes) -> dict[str, object]:
        digest = digest_of_bytes(data)
        (folder / "blobs" / digest.replace(":", "/")).write_bytes(data)
        return {"digest": digest, "size": len(data)}

    empty = {"mediaType": "application/vnd.oci.empty.v1+json", **store(b"{}")}
    manifest = {"schemaVersion": 2, "artifactType": "example/list", "config": empty, "layers": [empty]}
    artifact = {**store(json.dumps(manifest).encode()), "artifactType": "example/list"}
    (folder / "index.json").write_text(json.dumps({**index, "manifests": [*index["manifests"], artifact]}))
    assert files(importer.image(f"oci:{folder}"), tmp_path / "1") == {"base"}
    (folder / "index.json").write_text(json.dumps({**index, "manifests": [{**artifact, "artifactType": ""}]}))
    done = importer("import", f"oci:{folder}")
    assert done.returncode == 1
    assert "its configuration is application/vnd.oci.empty.v1+json" in done.stderr


def test_an_image_for_windows(importer: Importer, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "layout")
    configuration = Configuration(Platform("windows", "amd64"), (), {}, "1970-01-01T00:00:00Z")
    data = configuration.to_bytes()
    layout.add(Manifest(Descriptor(CONFIG, digest_of_bytes(data), len(data)), ()), configuration, ["1"])
    done = importer("import", f"oci:{layout.folder}")
    assert (done.returncode, "windows" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("reference", "names"),
    [
        ("lab.example/app:1", {"base", "one"}),
        ("app:2", {"base", "two"}),
        ("debian", {"base"}),
    ],
)
def test_an_archive_of_several_images(
    importer: Importer, tmp_path: Path, reference: str, names: set[str]
) -> None:
    archive = docker_archive(tmp_path / "saved.tar", IMAGES)
    assert files(importer.image(f"docker-archive:{archive}:{reference}"), tmp_path / "tree") == names


def test_what_is_in_an_archive_is_told(importer: Importer, tmp_path: Path) -> None:
    archive = docker_archive(tmp_path / "saved.tar", IMAGES)
    there = "lab.example/app:1, lab.example/app:2, debian:latest"
    done = importer("import", f"docker-archive:{archive}")
    assert (
        done.returncode,
        f"there are several images; say which one behind a colon: {there}" in done.stderr,
    ) == (1, True)
    done = importer("import", f"docker-archive:{archive}:app")
    assert (done.returncode, f"no image of that name; there are: {there}" in done.stderr) == (1, True)


def squeezed(path: Path, *program: str) -> Path:
    """`path` compressed as a whole."""
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed")
    smaller = path.with_name(f"{path.name}.{program[0]}")
    with smaller.open("wb") as out:
        subprocess.run([*program, "-c", str(path)], stdout=out, check=True)
    return smaller


@pytest.mark.parametrize("program", ["gzip", "zstd"])
def test_archives_that_are_compressed_as_a_whole(importer: Importer, tmp_path: Path, program: str) -> None:
    archive = squeezed(docker_archive(tmp_path / "saved.tar", IMAGES), program)
    assert files(importer.image(f"docker-archive:{archive}:app:1"), tmp_path / "1") == {"base", "one"}
    layout = write_layout(tmp_path / "layout", [BASE, TWO])
    with tarfile.open(tmp_path / "oci.tar", "w") as tar:
        tar.add(layout, ".")
    archive = squeezed(tmp_path / "oci.tar", program)
    assert files(importer.image(f"oci-archive:{archive}:test"), tmp_path / "2") == {"base", "two"}
    archive.write_bytes(archive.read_bytes()[:-20])
    done = importer("import", "-o", "bad.sqsh", f"oci-archive:{archive}")
    assert (done.returncode, "cut off" in done.stderr) == (1, True), done.stderr
    assert list((importer.folder / "tmp").iterdir()) == []


def test_an_archive_in_a_compression_that_is_not_known(importer: Importer, tmp_path: Path) -> None:
    archive = squeezed(docker_archive(tmp_path / "saved.tar", IMAGES), "xz")
    done = importer("import", f"docker-archive:{archive}:debian")
    assert done.returncode == 1
    assert f"[ERROR] {archive}: " in done.stderr
    assert "compressed with xz" in done.stderr


def _load(command: Sequence[str], archive: Path, env: Mapping[str, str]) -> None:
    done = subprocess.run(
        [*command, "load", "-i", str(archive)], env={**os.environ, **env}, capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"{command[0]} cannot load an image here: {done.stderr.strip()[-300:]}")


def check_daemon(importer: Importer, scheme: str, env: Mapping[str, str], tmp_path: Path) -> None:
    image = importer.image(f"{scheme}://lab.example/app:1", env=env)
    assert files(image, tmp_path / "one") == {"base", "one"}
    done = importer("import", f"{scheme}://lab.example/app:9", env=env)
    assert (done.returncode, "save" in done.stderr) == (1, True)
    assert importer("import", f"{scheme}://lab.example/app:2", env=env).returncode == 0
    assert (importer.folder / "lab.example+app+2.sqsh").exists()
    assert importer("load", "-n", "root", f"{scheme}://lab.example/app:2", env=env).returncode == 0
    assert (importer.folder / "data/root/two").read_text() == "two"
    assert list((importer.folder / "tmp").iterdir()) == []


@ONLY_ROOT
def test_images_of_podman(importer: Importer, tmp_path: Path) -> None:
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed: dockerd:// and podman:// are not tested here")
    storage = tmp_path / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/graph"\nrunroot = "{tmp_path}/run"\n'
    )
    env = {"CONTAINERS_STORAGE_CONF": str(storage)}
    _load(["podman"], docker_archive(tmp_path / "saved.tar", IMAGES), env)
    check_daemon(importer, "podman", env, tmp_path)


@ONLY_ROOT
def test_images_of_docker(importer: Importer, tmp_path: Path) -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed: dockerd:// is not tested here")
    try:
        with private_dockerd(tmp_path / "docker") as address:
            env = {"DOCKER_HOST": address}
            _load(["docker"], docker_archive(tmp_path / "saved.tar", IMAGES), env)
            check_daemon(importer, "dockerd", env, tmp_path)
    except CellblockError as error:
        pytest.skip(f"dockerd does not run here, so that dockerd:// is not tested: {error}")


def test_a_program_that_is_not_there(importer: Importer, tmp_path: Path) -> None:
    for scheme, name in (("dockerd", "docker"), ("podman", "podman")):
        done = importer("import", f"{scheme}://-x")
        assert done.returncode == 1
        assert "no image is named" in done.stderr or f"the program {name} is not installed" in done.stderr
