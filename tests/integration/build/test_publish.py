# SPDX-License-Identifier: Apache-2.0
"""`build.py push`: from a store, a layout or the engine to a registry, and a file of digests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.attest.subject import Subject
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events
from cellblock.oci.layout import Layout
from cellblock.oci.model import CONFIG, LAYER_TAR, Configuration, Descriptor, Manifest, Platform
from cellblock.oci.model import digest_of_bytes as digest_of
from cellblock.oci.registry import Registry
from cellblock.release.publish import PublishRequest, publish, publish_indexes, write_digests
from cellblock.store.image_store import image_store
from tests.integration.registry import RunningRegistry, repository_of
from tests.oci.layers import layer_bytes, member

VARIANT = "debian13"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """The image store of a machine of the test's own."""
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    return image_store()


@pytest.fixture
def request_(registry: RunningRegistry, request: pytest.FixtureRequest) -> PublishRequest:
    return PublishRequest(f"{registry.host}/{repository_of(request)}", ("worker",), VARIANT)


def build(
    layout: Layout, image: str, name: str | None = None, arch: str = "amd64", path: str = "etc/motd"
) -> str:
    """An image as the builder leaves one, with a file at `path`; returns its digest."""
    layer = layout.write(layer_bytes([member(path, f"{image} {arch}")]), LAYER_TAR)
    configuration = Configuration(Platform("linux", arch), (layer.digest,))
    data = configuration.to_bytes()
    config = Descriptor(CONFIG, digest_of(data), len(data))
    name = name or f"localhost/cellblock/{image}:{VARIANT}"
    return layout.add(Manifest(config, (layer,)), configuration, [name]).digest


def inspected(reference: str) -> dict[str, object]:
    argv = ["skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{reference}"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def test_images_get_names_below_the_repository_and_the_variant_as_tag(
    store: Layout, request_: PublishRequest, registry: RunningRegistry
) -> None:
    digests = {name: build(store, name) for name in ("worker", "login")}
    published = publish(replace(request_, images=("worker", "login")), Events())
    for image in published.images:
        assert image.repository == f"{request_.repository}/{image.name}"
        assert image.tags == (VARIANT,)
        assert image.digest == digests[image.name]
        assert inspected(f"{image.repository}:{VARIANT}") == inspected(f"{image.repository}@{image.digest}")


def test_without_names_what_a_cluster_runs_is_pushed(store: Layout, request_: PublishRequest) -> None:
    for name in ("base", "slurm", "toolchain", "plugins", "controller", "worker", "login", "jail"):
        build(store, name)
    from cellblock.definition import load_images
    from cellblock.paths import PROJECT

    for name in load_images(PROJECT / "images"):
        build(store, name)
    names = {image.name for image in publish(replace(request_, images=()), Events()).images}
    assert {"controller", "worker", "login", "jail"} <= names
    assert not {"toolchain", "plugins"} & names


def test_the_file_of_digests_has_what_a_deployment_needs(
    store: Layout, request_: PublishRequest, tmp_path: Path
) -> None:
    digest = build(store, "worker")
    path = tmp_path / "digests.json"
    path.write_text("old")
    write_digests(publish(replace(request_, tags=("v1", "v1.2")), Events()), path)
    assert json.loads(path.read_text()) == {
        "worker": {
            "image": f"{request_.repository}/worker",
            "tag": "v1",
            "tags": ["v1", "v1.2"],
            "digest": digest,
            "reference": f"{request_.repository}/worker@{digest}",
            "size": store.image(digest).size,
            "platforms": ["linux/amd64"],
        }
    }
    assert list(tmp_path.glob(".digests*")) == []


def test_an_audit_that_fails_stops_the_push_before_anything_is_sent(
    store: Layout, request_: PublishRequest, registry: RunningRegistry
) -> None:
    digest = build(store, "worker")
    seen: list[str] = []

    def audit(images: Sequence[Subject]) -> None:
        seen.extend(f"{each.name} {each.variant} {each.image.digest}" for each in images)
        raise CellblockError("worker: /etc/key is a secret")

    with pytest.raises(CellblockError, match="is a secret"):
        publish(replace(request_, before_push=audit), Events())
    assert seen == [f"worker {VARIANT} {digest}"]
    path = f"{request_.repository.partition('/')[2]}/worker"
    assert Registry(registry.host).repository(path).tags() == []


@pytest.mark.parametrize("name", ["localhost/cellblock/worker:debian13", "worker:debian13", "worker"])
def test_a_layout_is_pushed_from_by_the_names_that_people_give(
    request_: PublishRequest, tmp_path: Path, name: str
) -> None:
    digest = build(Layout(tmp_path / "oci"), "worker", name)
    published = publish(replace(request_, source=f"oci:{tmp_path}/oci"), Events())
    assert published.images[0].digest == digest


def test_architectures_are_pushed_apart_and_joined(store: Layout, request_: PublishRequest) -> None:
    digests = {}
    for arch in ("amd64", "arm64"):
        digests[arch] = build(store, "worker", arch=arch)
        (image,) = publish(replace(request_, per_architecture=True), Events()).images
        assert image.tags == (f"{VARIANT}-{arch}",)
    (joined,) = publish_indexes(request_, ["amd64", "arm64"], Events()).images
    assert joined.changed
    assert joined.tags == (VARIANT,)
    index = inspected(f"{joined.repository}:{VARIANT}")
    assert [
        (each["platform"]["architecture"], each["digest"])
        for each in index["manifests"]  # type: ignore[attr-defined]
    ] == list(digests.items())
    (again,) = publish_indexes(request_, [], Events()).images
    assert (again.digest, again.changed) == (joined.digest, False)


def test_an_architecture_that_was_not_pushed_is_named_or_left_out(
    store: Layout, request_: PublishRequest
) -> None:
    with pytest.raises(CellblockError, match="there is nothing to join"):
        publish_indexes(request_, [], Events())
    build(store, "worker", arch="amd64")
    publish(replace(request_, per_architecture=True), Events())
    with pytest.raises(CellblockError, match="has no debian13-arm64: the image for arm64 was not pushed"):
        publish_indexes(request_, ["amd64", "arm64"], Events())
    (joined,) = publish_indexes(request_, [], Events()).images
    assert [platform.architecture for platform in joined.platforms] == ["amd64"]


def test_an_image_under_the_tag_of_another_architecture_is_refused(
    store: Layout, request_: PublishRequest
) -> None:
    build(store, "worker", arch="amd64")
    publish(replace(request_, tags=(f"{VARIANT}-arm64",)), Events())
    with pytest.raises(CellblockError, match="is for amd64, and its tag says arm64"):
        publish_indexes(request_, ["arm64"], Events())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"images": ("wroker",)}, "did you mean 'worker'"),
        ({"repository": "worker"}, "no registry's host"),
        ({"repository": "localhost:1/a:b"}, "names an image"),
        ({"tags": ("a b",)}, "cannot be a tag"),
        ({"source": "oci:/nonexistent"}, "no OCI image layout"),
        ({"source": "docker"}, "no such source"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_done(
    store: Layout, request_: PublishRequest, change: dict[str, object], said: str
) -> None:
    build(store, "worker")
    asked = replace(request_, before_push=lambda images: pytest.fail("images were audited before"))
    with pytest.raises(UsageError, match=said):
        publish(replace(asked, **change), Events())  # type: ignore[arg-type]


def test_an_image_that_is_not_built_is_named_with_the_command(
    store: Layout, request_: PublishRequest
) -> None:
    with pytest.raises(CellblockError, match="store has no image worker of variant debian13") as caught:
        publish(request_, Events())
    assert "build.py build worker -v debian13" in caught.value.hint


def test_keyless_without_cosign_is_refused_before_anything_is_sent(
    store: Layout, request_: PublishRequest, tmp_path: Path
) -> None:
    build(store, "worker")
    argv = [sys.executable, "-m", "cellblock.cli", "push", request_.repository, "worker", "-v", VARIANT]
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(
        [*argv, "--keyless", "--no-audit"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: --keyless: the program cosign is not installed")


@pytest.mark.parametrize("status", [0, 3])
def test_keyless_has_cosign_sign_each_image_by_its_digest(
    store: Layout, request_: PublishRequest, tmp_path: Path, status: int
) -> None:
    """by a cosign of the test's own, which asks the registry: what is signed is there already"""
    digests = {name: build(store, name) for name in ("login", "worker")}
    cosign = tmp_path / "programs/cosign"
    cosign.parent.mkdir()
    cosign.write_text(
        f"""#!/bin/sh
        echo "$*" >> {tmp_path}/said
        for last; do :; done
        skopeo inspect --raw --tls-verify=false "docker://$last" >/dev/null || exit 4
        echo "no identity" >&2
        exit {status}
        """
    )
    cosign.chmod(0o755)
    argv = [sys.executable, "-m", "cellblock.cli", "push", request_.repository, *digests, "-v", VARIANT]
    environment = {**os.environ, "PATH": f"{cosign.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*argv, "--keyless", "--no-audit"], env=environment, capture_output=True, text=True, check=False
    )
    signed = [line.split()[-1] for line in (tmp_path / "said").read_text().splitlines()]
    wanted = [f"{request_.repository}/{name}@{digest}" for name, digest in digests.items()]
    if status:
        assert done.returncode == 1
        assert "no identity" in done.stderr
        assert "next: " in done.stderr
        assert signed == wanted[:1]
    else:
        assert done.returncode == 0, done.stderr
        assert signed == wanted


def test_the_command_line_pushes_and_writes_digests(
    store: Layout, request_: PublishRequest, tmp_path: Path
) -> None:
    digest = build(store, "worker")
    argv = [sys.executable, "-m", "cellblock.cli", "push", request_.repository, "worker", "-v", VARIANT]
    argv += ["--digests", str(tmp_path / "digests.json"), "--json", "--no-audit"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    printed = json.loads(done.stdout)["images"]
    assert printed["worker"]["digest"] == digest
    assert json.loads((tmp_path / "digests.json").read_text()) == printed


def test_the_command_line_refuses_an_image_that_the_audit_finds_fault_with(
    store: Layout, request_: PublishRequest, registry: RunningRegistry
) -> None:
    build(store, "worker", path="etc/munge/munge.key")
    argv = [sys.executable, "-m", "cellblock.cli", "push", request_.repository, "worker", "-v", VARIANT]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "/etc/munge/munge.key is or holds the munge key" in done.stderr
    path = f"{request_.repository.partition('/')[2]}/worker"
    assert Registry(registry.host).repository(path).tags() == []
    assert subprocess.run([*argv, "--no-audit"], capture_output=True, check=False).returncode == 0


def test_a_signature_is_pushed_to_where_cosign_looks_for_it(
    store: Layout, request_: PublishRequest, tmp_path: Path
) -> None:
    digest = build(store, "worker")
    key = tmp_path / "key.pem"
    argv = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)]
    subprocess.run(argv, check=True, capture_output=True)
    argv = [sys.executable, "-m", "cellblock.cli", "attest", "worker", "-v", VARIANT, "--key", str(key)]
    refused = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "add --for HOST/PATH" in refused.stderr
    subprocess.run([*argv, "--for", request_.repository], check=True, capture_output=True)
    publish(request_, Events())
    for suffix in ("sig", "att"):
        manifest = inspected(f"{request_.repository}/worker:{digest.replace(':', '-')}.{suffix}")
        assert isinstance(manifest["subject"], dict)
        assert manifest["subject"]["digest"] == digest


def test_the_engine_gives_its_image(request_: PublishRequest, tmp_path: Path) -> None:
    if subprocess.run(["buildah", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("buildah is not installed: `python3 build.py up` installs it")
    (tmp_path / "images/note").mkdir(parents=True)
    (tmp_path / "images/note/image.yaml").write_text("summary: a note\ncommand: [cat]\n")
    (tmp_path / "images/variants.yaml").write_text(
        "distributions:\n"
        "  pushed: {id: debian, version: '13', codename: trixie, slurm: '24.11', stable: true}\n"
        f"variants:\n  {VARIANT}-push-test: {{distribution: pushed}}\n"
    )
    reference = f"localhost/cellblock/note:{VARIANT}-push-test"
    script = (
        'c=$(buildah from scratch); echo note > "$1/note"; buildah copy --quiet "$c" "$1/note" /note;'
        ' buildah commit --quiet "$c" "$2"; buildah rm "$c"'
    )
    subprocess.run(["sh", "-euc", script, "sh", str(tmp_path), reference], check=True, capture_output=True)
    try:
        wanted = replace(request_, images=(), variant=None, source="engine", definitions=tmp_path / "images")
        (image,) = publish(wanted, Events()).images
    finally:
        subprocess.run(["buildah", "rmi", reference], check=True, capture_output=True)
    assert image.name == "note"
    (layer,) = inspected(f"{image.repository}@{image.digest}")["layers"]  # type: ignore[misc]
    assert layer["mediaType"].endswith("zstd")
