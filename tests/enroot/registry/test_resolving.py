# SPDX-License-Identifier: Apache-2.0
"""From a URI to one manifest: formats, platforms, digests, and what is asked of the registry for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.enroot.registry.conftest import PATH, Client, Stock
from tests.enroot.registry.images import OCI_MANIFEST, Blob, Pusher, make_image, make_index
from tests.integration.registry_proxy import Fault, Proxy


def test_a_tag_and_a_digest_and_both(client: Client, stock: Stock) -> None:
    name, digest = f"{stock.host}/{PATH}", stock.image.digest
    assert client.digest(f"{name}:v1") == digest
    assert client.digest(f"{name}@{digest}") == digest
    assert client.digest(f"{name}:many@{digest}") == digest, "a digest beats a tag"
    assert client.digest(f"{stock.host}#{PATH}:v1") == digest


@pytest.mark.parametrize("docker", [False, True], ids=["oci", "docker"])
def test_both_formats_are_read(client: Client, stock: Stock, docker: bool) -> None:
    pusher = Pusher(f"http://{stock.host}", f"formats/docker-{docker}".lower())
    image = pusher.image(make_image((2000, 30), docker=docker), "one")
    pusher.manifest(make_index({"linux/amd64": image}, docker=docker), "list")
    for tag in ("one", "list"):
        assert client.fetch(f"{stock.host}/{pusher.path}:{tag}", "-a", "amd64").is_of(image)


@pytest.mark.parametrize(
    ("asked", "platform"),
    [
        ("amd64", "linux/amd64"),
        ("x86_64", "linux/amd64"),
        ("aarch64", "linux/arm64"),
        ("arm64/v8", "linux/arm64"),
        ("arm", "linux/arm/v7"),
        ("arm/v6", "linux/arm/v6"),
        ("armhf", "linux/arm/v7"),
    ],
)
def test_an_index_leads_to_the_platform(client: Client, stock: Stock, asked: str, platform: str) -> None:
    assert client.digest(f"{stock.host}/{PATH}:multi", "-a", asked) == stock.variants[platform].digest


def test_an_absent_platform_names_those_that_are_there(client: Client, stock: Stock) -> None:
    text = client.error("digest", "-a", "ppc64le", f"docker://{stock.host}/{PATH}:multi")
    assert f"{stock.host}/{PATH}:multi: it is not there for linux/ppc64le; there are: " in text
    assert "linux/amd64, linux/arm64, linux/arm/v6, linux/arm/v7" in text
    assert "-a" in text


def test_an_image_without_index_for_another_platform(client: Client, stock: Stock) -> None:
    pusher = Pusher(f"http://{stock.host}", "other/machine")
    image = pusher.image(make_image(architecture="s390x"), "v1")
    uri = f"docker://{stock.host}/other/machine:v1"
    assert "it is not there for linux/arm64; there is only: linux/s390x" in client.error("-a", "arm64", uri)
    fetched = client.fetch(f"{stock.host}/other/machine:v1")
    assert fetched.is_of(image)
    assert "it is made for linux/s390x, not for this machine" in fetched.warnings


def test_what_is_not_there(client: Client, stock: Stock) -> None:
    text = client.error("digest", f"docker://{stock.host}/{PATH}:v2")
    assert text.startswith(f"{stock.host} has no {PATH}:v2: the tag is not there, or no image of")
    assert f"could not get the manifest of {stock.host}/{PATH}:v2: 404, manifest unknown" in text
    assert "next: check the name and the tag" in text


def test_one_request_when_all_is_known(client: Client, stock: Stock, proxy: Proxy, tmp_path: Path) -> None:
    """A HEAD for a tag, nothing for a digest."""
    kept = tmp_path / "kept"
    kept.mkdir()
    uri = f"{proxy.host}/{PATH}:multi"
    first = client.fetch(uri, "-d", kept, "-a", "arm64")
    assert first.is_of(stock.variants["linux/arm64"])
    assert first.image["named"] == stock.index
    proxy.log.clear()
    assert client.fetch(uri, "-d", kept, "-a", "arm64").is_of(stock.variants["linux/arm64"])
    assert proxy.count(f"HEAD /v2/{PATH}/manifests/multi") == 1
    assert proxy.count("manifests|configuration") == 1
    proxy.log.clear()
    client.fetch(f"{proxy.host}/{PATH}@{stock.index}", "-d", kept, "-a", "arm64")
    assert proxy.count("manifests") == 0


def test_what_was_kept_is_verified(client: Client, stock: Stock, tmp_path: Path) -> None:
    client.fetch(f"{stock.host}/{PATH}:v1", "-d", tmp_path)
    (tmp_path / stock.image.digest).write_bytes(stock.many.manifest.data)
    assert client.fetch(f"{stock.host}/{PATH}:v1", "-d", tmp_path).is_of(stock.image)


@pytest.mark.parametrize("what", ["manifests/sha256", "blobs"])
def test_a_document_with_another_digest(client: Client, stock: Stock, proxy: Proxy, what: str) -> None:
    proxy.faults.append(Fault(f"GET .*/{what}", corrupt_download=True))
    text = client.error(f"docker://{proxy.host}/{PATH}@{stock.image.digest}")
    assert f"{proxy.host}: " in text
    assert "came with digest sha256:" in text


def test_the_digest_of_a_tag_is_compared_with_what_came(client: Client, stock: Stock, proxy: Proxy) -> None:
    proxy.faults.append(Fault("GET .*/manifests/", corrupt_download=True))
    assert "came with digest sha256:" in client.error(f"docker://{proxy.host}/{PATH}:v1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"config": {"mediaType": "application/vnd.cncf.helm.config.v1+json"}}, "helm"),
        ({"layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip+encrypted"}]}, "encrypted"),
        ({"layers": [{"mediaType": "application/vnd.in-toto+json"}]}, 'layer 0 is "application/vnd.in-toto'),
        ({"layers": []}, "it has 0 layers, and its configuration 1"),
    ],
)
def test_what_is_no_image_is_refused(
    client: Client, stock: Stock, change: dict[str, object], said: str
) -> None:
    pusher = Pusher(f"http://{stock.host}", "no/image")
    image = pusher.image(make_image())
    document = json.loads(image.manifest.data)
    for key, value in change.items():
        if isinstance(value, list):
            document[key] = [{**old, **new} for old, new in zip(document[key], value, strict=False)]
        elif isinstance(value, dict):
            document[key].update(value)
    pusher.manifest(Blob(OCI_MANIFEST, json.dumps(document).encode()), "x")
    assert said in client.error(f"docker://{stock.host}/no/image:x")


@pytest.mark.parametrize(
    "uri", ["", "docker://", "docker://UPPER", "docker://a@sha256:12", "dockerd://x", "docker://x:"]
)
def test_wrong_uris(client: Client, uri: str) -> None:
    assert '"' in client.error("digest", uri)
