# SPDX-License-Identifier: Apache-2.0
"""Layers stream in order while those behind them come, over connections and registries that fail."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.enroot.registry.conftest import PATH, Client, Stock
from tests.enroot.registry.images import OCI_MANIFEST, Blob, Pusher, digest_of, make_image
from tests.integration.registry_proxy import Fault, Proxy

BLOBS = "GET .*/blobs/"


@pytest.mark.parametrize("connections", ["1", "2", "10"])
def test_all_layers_come(client: Client, stock: Stock, connections: str) -> None:
    fetched = client.fetch(f"{stock.host}/{PATH}:many", ENROOT_MAX_CONNECTIONS=connections)
    assert fetched.is_of(stock.many)
    assert fetched.warnings == ""


def test_a_reader_that_is_slow(client: Client, stock: Stock) -> None:
    """Then the layers behind are whole already, and come from the spool."""
    fetched = client.fetch(f"{stock.host}/{PATH}:many", FETCH_WAIT_MS="20")
    assert fetched.is_of(stock.many)


def test_connections_are_bounded(client: Client, stock: Stock, proxy: Proxy) -> None:
    proxy.faults.append(Fault(BLOBS, times=99, pause_s=0.003))
    most = 0
    take = proxy.take

    def watched(method: str, path: str) -> Fault | None:
        nonlocal most
        most = max(most, proxy.busy)
        return take(method, path)

    proxy.take = watched  # type: ignore[method-assign]
    client.fetch(f"{proxy.host}/{PATH}:many", ENROOT_MAX_CONNECTIONS="3")
    assert most == 3


def test_nothing_is_left_where_layers_waited(client: Client, stock: Stock, tmp_path: Path) -> None:
    (tmp_path / "temp").mkdir()
    client.fetch(f"{stock.host}/{PATH}:many", ENROOT_TEMP_PATH=str(tmp_path / "temp"))
    assert list((tmp_path / "temp").iterdir()) == []


@pytest.mark.parametrize("connections", ["1", "2", "10"])
def test_no_room_for_layers_that_wait(client: Client, stock: Stock, connections: str) -> None:
    """Files may have 20 kB; the layers have megabytes."""
    env = {"ENROOT_MAX_CONNECTIONS": connections}
    assert client.fetch(f"{stock.host}/{PATH}:many", file_limit=20_000, **env).is_of(stock.many)


def test_nowhere_to_wait(client: Client, stock: Stock) -> None:
    env = {"ENROOT_TEMP_PATH": "/nowhere", "ENROOT_CACHE_PATH": "/nowhere"}
    assert client.fetch(f"{stock.host}/{PATH}:many", **env).is_of(stock.many)


def test_a_broken_connection_goes_on_where_it_was(client: Client, stock: Stock, proxy: Proxy) -> None:
    """Three breaks are more than the attempts at one thing; but each time more had come."""
    largest = max(stock.many.layers, key=lambda layer: len(layer.data))
    proxy.faults.append(Fault(BLOBS + largest.digest, times=3, drop_download=100_000))
    assert client.fetch(f"{proxy.host}/{PATH}:many", ENROOT_TRANSFER_RETRIES="1").is_of(stock.many)
    ranges = [seen.headers["Range"] for seen in proxy.seen if "Range" in seen.headers]
    assert ranges == ["bytes=100000-", "bytes=200000-", "bytes=300000-"]


def test_a_registry_without_ranges(client: Client, stock: Stock, proxy: Proxy) -> None:
    layers = BLOBS + stock.image.layers[1].digest
    proxy.faults += [Fault(layers, drop_download=10_000), Fault(layers, ignore_range=True)]
    assert client.fetch(f"{proxy.host}/{PATH}:v1").is_of(stock.image)
    assert proxy.count(layers) == 2


def test_breaks_without_progress_end_it(client: Client, stock: Stock, proxy: Proxy) -> None:
    proxy.faults.append(Fault(BLOBS + stock.image.layers[0].digest, times=99, drop_download=0))
    text = client.error(f"docker://{proxy.host}/{PATH}:v1", ENROOT_TRANSFER_RETRIES="1")
    assert text.startswith(f"{proxy.host}: could not get layer {stock.image.layers[0].digest[:19]} of ")
    assert "the connection broke: " in text
    assert proxy.count(BLOBS + stock.image.layers[0].digest) == 2


def test_a_truncated_blob(client: Client, stock: Stock, proxy: Proxy) -> None:
    """The registry's copy itself: no connection breaks."""
    layer = stock.image.layers[1]
    body = layer.data[:100]
    proxy.faults.append(Fault(BLOBS + layer.digest, times=99, status=200, body=body))
    text = client.error(f"docker://{proxy.host}/{PATH}:v1", ENROOT_TRANSFER_RETRIES="1")
    assert f"ended after 100 of {len(layer.data)} bytes" in text
    assert "have it pushed again" in text


def test_a_blob_that_is_longer(client: Client, stock: Stock, proxy: Proxy) -> None:
    layer = stock.image.layers[1]
    proxy.faults.append(Fault(BLOBS + layer.digest, status=200, body=layer.data + b"more"))
    text = client.error(f"docker://{proxy.host}/{PATH}:v1")
    assert text.startswith(f"{proxy.host}: blob {layer.digest} is longer than the {len(layer.data)} bytes")


def test_a_failing_registry_is_asked_again(client: Client, stock: Stock, proxy: Proxy) -> None:
    proxy.faults += [
        Fault("HEAD .*/manifests", status=503),
        Fault("GET .*/manifests", status=500),
        Fault(BLOBS, times=2, status=502),
    ]
    assert client.digest(f"{proxy.host}/{PATH}:v1") == stock.image.digest
    assert client.fetch(f"{proxy.host}/{PATH}:v1").is_of(stock.image)


def test_a_registry_that_fails_on(client: Client, stock: Stock, proxy: Proxy) -> None:
    proxy.faults.append(Fault(".*", times=99, status=503, body=b"<h1>out\n of order\x1b[31m</h1>"))
    text = client.error(f"docker://{proxy.host}/{PATH}:v1", ENROOT_TRANSFER_RETRIES="1")
    assert "503, <h1>out of order[31m</h1>" in text
    assert f"look at the log of {proxy.host}" in text


def test_a_limit_that_passes_is_waited_for(client: Client, stock: Stock, proxy: Proxy) -> None:
    proxy.faults.append(Fault(BLOBS, status=429, headers={"Retry-After": "1"}))
    begun = time.monotonic()
    fetched = client.fetch(f"{proxy.host}/{PATH}:v1")
    assert fetched.is_of(stock.image)
    assert time.monotonic() - begun > 1
    assert "[WARN] " in fetched.warnings
    assert "too many requests for now, until " in fetched.warnings
    assert "; trying again in 1 s" in fetched.warnings


@pytest.mark.parametrize("as_date", [False, True], ids=["seconds", "date"])
def test_a_limit_that_lasts_says_until_when(
    client: Client, stock: Stock, proxy: Proxy, as_date: bool
) -> None:
    end = time.time() + 3600
    after = email.utils.formatdate(end, usegmt=True) if as_date else "3600"
    body = b'{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit."}]}'
    proxy.faults.append(Fault("GET .*/manifests", status=429, headers={"Retry-After": after}, body=body))
    text = client.error(f"docker://{proxy.host}/{PATH}:v1")
    assert "429, You have reached your pull rate limit.: too many requests for now, until " in text
    said = text.partition("until ")[2][:12]
    assert said in [time.strftime("%H:%M:%S UTC", time.gmtime(end + late)) for late in range(-1, 60)]
    assert "those who log in have a higher limit" in text


@pytest.mark.parametrize("after", ["9" * 15, "9" * 30, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_limit_beyond_any_calendar_says_no_date(
    client: Client, stock: Stock, proxy: Proxy, after: str
) -> None:
    proxy.faults.append(Fault("GET .*/manifests", status=429, headers={"Retry-After": after}))
    text = client.error(f"docker://{proxy.host}/{PATH}:v1")
    assert "too many requests for now\n" in text
    assert "run this again later, or with credentials" in text


def test_a_layer_that_is_whole_when_the_connection_breaks(client: Client, stock: Stock, proxy: Proxy) -> None:
    """There is no rest to ask for: a registry answers 416 to that."""
    layer = stock.image.layers[1]
    proxy.faults.append(Fault(BLOBS + layer.digest, drop_after_all=True))
    assert client.fetch(f"{proxy.host}/{PATH}:v1").is_of(stock.image)
    assert proxy.count(BLOBS + layer.digest) == 1


def test_a_transfer_that_takes_too_long(client: Client, stock: Stock, proxy: Proxy) -> None:
    proxy.faults.append(Fault(BLOBS, times=99, pause_s=0.4))
    text = client.error(
        f"docker://{proxy.host}/{PATH}:many",
        ENROOT_TRANSFER_TIMEOUT="1",
        ENROOT_TRANSFER_RETRIES="1",
        ENROOT_MAX_CONNECTIONS="1",
    )
    assert "bytes came in 1 s" in text
    assert "ENROOT_TRANSFER_TIMEOUT" in text


def test_storage_elsewhere(
    client: Client, stock: Stock, proxy: Proxy, proxies: Callable[[str], Proxy]
) -> None:
    """Blobs redirect to another host, which gets nothing of what proves who we are."""
    storage = proxies(stock.host)
    proxy.uses_of_a_token = 99
    for layer in (*stock.image.layers, stock.image.config):
        location = f"http://{storage.host}/v2/{PATH}/blobs/{layer.digest}?signature=x"
        proxy.faults.append(Fault(BLOBS + layer.digest, status=307, headers={"Location": location}))
    assert client.fetch(f"{proxy.host}/{PATH}:v1").is_of(stock.image)
    assert storage.count(BLOBS) == 3
    assert not [seen for seen in storage.seen if "Authorization" in seen.headers]
    assert [seen for seen in proxy.seen if "Authorization" in seen.headers]


@pytest.mark.parametrize("there", [True, False])
def test_a_layer_that_no_registry_has(
    client: Client, stock: Stock, proxies: Callable[[str], Proxy], there: bool
) -> None:
    """Its descriptor says where else it is; that place gets nothing of what proves who we are."""
    storage, image = proxies(stock.host), make_image((3000, 4000), variant="v8" if there else "v9")
    pusher = Pusher(f"http://{stock.host}", "team/foreign")
    pusher.blob(image.config)
    pusher.blob(image.layers[0])
    far = image.layers[1]
    if there:
        Pusher(f"http://{stock.host}", PATH).blob(far)
    address = f"http://{storage.host}/v2/{PATH}/blobs/{far.digest if there else digest_of(b'none')}"
    kind = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
    document = json.loads(image.manifest.data)
    document["layers"][1] |= {"mediaType": kind, "urls": ["http://192.0.2.1/plain", address]}
    manifest = Blob(OCI_MANIFEST, json.dumps(document).encode())
    pusher.manifest(manifest, "far")
    client.credentials("default login ada password sesame\n")
    if there:
        fetched = client.fetch(f"{stock.host}/team/foreign:far")
        assert [each["digest"] for each in fetched.layers] == [far.digest, image.layers[0].digest]
    else:
        text = client.error(f"docker://{stock.host}/team/foreign:far")
        assert "http://192.0.2.1:80: plain http is not allowed (ENROOT_ALLOW_HTTP)" in text
        assert f"its address http://{storage.host}" in text
    assert storage.count(BLOBS) == 1
    assert not [seen for seen in storage.seen if "Authorization" in seen.headers]


def test_a_circle_of_redirects(client: Client, proxy: Proxy) -> None:
    there = {"Location": f"/v2/{PATH}/manifests/v1"}
    proxy.faults.append(Fault("manifests", times=99, status=302, headers=there))
    assert "more than 5 redirects" in client.error(f"docker://{proxy.host}/{PATH}:v1")


def test_a_redirect_to_a_file(client: Client, proxy: Proxy) -> None:
    proxy.faults.append(Fault("manifests", times=99, status=302, headers={"Location": "file:///etc/passwd"}))
    text = client.error(f"docker://{proxy.host}/{PATH}:v1")
    assert "it redirects to what is no web address" in text


def test_nobody_there(client: Client) -> None:
    text = client.error("docker://127.0.0.1:1/a/b")
    assert text.startswith(
        "127.0.0.1:1: could not get the manifest of 127.0.0.1:1/a/b:latest: no connection: "
    )


def test_a_name_that_nobody_has(client: Client) -> None:
    text = client.error("docker://registry.invalid/a/b")
    assert "registry.invalid: could not get the manifest" in text
    assert "no host of this name is known" in text
    assert "getent hosts registry.invalid" in text
