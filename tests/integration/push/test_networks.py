# SPDX-License-Identifier: Apache-2.0
"""Pushes over a network that fails in every way that it can be told to."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.oci.layout import Layout
from cellblock.oci.push import push
from cellblock.oci.registry import (
    ConnectionOptions,
    Denied,
    RateLimited,
    Registry,
    RegistryError,
    RegistryUnreachable,
    WrongDigest,
)
from cellblock.oci.registry.download import blob_chunks
from tests.integration.push.pushing import LARGE, add, content, image, pulled, send
from tests.integration.registry import running_registry
from tests.integration.registry_proxy import Fault, Proxy
from tests.ports import free_port

BREAKS = {
    "dropped amid a layer": Fault("PATCH", drop_upload=2_000_000),
    "dropped before anything arrived": Fault("PATCH", times=2, drop_upload=0),
    "the answer to a layer is lost": Fault("PATCH", lose_answer=True),
    "the answer to the end of a layer is lost": Fault("PUT .*uploads", lose_answer=True),
    "the answer to the beginning is lost": Fault("POST .*uploads", lose_answer=True),
    "the answer to the manifest is lost": Fault("PUT .*manifests", lose_answer=True),
    "500 to a layer": Fault("PATCH", times=2, status=500),
    "503 to everything": Fault("", times=3, status=503, headers={"Retry-After": "0"}),
    "429 with a time": Fault("PATCH", status=429, headers={"Retry-After": "1"}),
    "a limit on the size of requests": Fault("PATCH", times=2, status=413),
    "an upload that is forgotten": Fault("PATCH", status=404),
    "a range that does not fit": Fault("PATCH", status=416),
    "a layer that is changed on its way": Fault("PATCH", corrupt_upload=True),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_push_gets_through(name: str, layout: Layout, proxy: Proxy, path: str, tmp_path: Path) -> None:
    root = add(layout, "a", content(path, LARGE))
    fault = replace(BREAKS[name])
    proxy.faults = [fault]
    send(layout, proxy.host, image("a", root, path))
    assert fault.times == 0, "the fault happened"
    assert pulled(proxy.host, path, "t", tmp_path / "pulled") == root.digest


def test_a_layer_goes_on_where_the_connection_broke(
    layout: Layout, proxy: Proxy, path: str, tmp_path: Path
) -> None:
    root = add(layout, "a", content(path, LARGE))
    proxy.faults = [Fault("PATCH", times=2, drop_upload=2_500_000, keep=True)]
    send(layout, proxy.host, image("a", root, path))
    ranges = [seen.headers["Content-Range"] for seen in proxy.seen if seen.method == "PATCH"]
    assert ranges == [f"{first}-{LARGE - 1}" for first in (0, 2_500_000, 5_000_000)]
    assert pulled(proxy.host, path, "t", tmp_path / "pulled") == root.digest


def test_all_wait_for_a_registry_that_asked_for_it_and_the_person_is_told(
    layout: Layout, proxy: Proxy, path: str
) -> None:
    proxy.faults = [Fault("HEAD .*blobs", status=429, headers={"Retry-After": "1"})]
    told: list[str] = []
    item = image("a", add(layout, "a", content(path)), path)
    push(layout, Registry(proxy.host, notice=told.append), [item], Events())
    assert "too many requests for now, until" in told[0]
    assert "trying again in 1 s" in told[0]


def test_a_limit_that_lasts_is_an_error_that_says_until_when(layout: Layout, proxy: Proxy, path: str) -> None:
    proxy.faults = [Fault("PATCH", times=99, status=429, headers={"Retry-After": "3600"})]
    with pytest.raises(RateLimited, match=r"429: too many requests for now, until \d\d:\d\d:\d\d UTC"):
        send(layout, proxy.host, image("a", add(layout, "a", content(path, LARGE)), path))
    assert proxy.count("PATCH") == 1


def test_what_is_changed_on_its_way_every_time_is_not_stored(layout: Layout, proxy: Proxy, path: str) -> None:
    proxy.faults = [Fault("PATCH", times=99, corrupt_upload=True)]
    with pytest.raises(RegistryError, match="digest"):
        send(layout, proxy.host, image("a", add(layout, "a", content(path, LARGE)), path))
    assert proxy.count("PATCH") == 3
    assert proxy.count("PUT .*manifests") == 0


def test_a_manifest_that_the_registry_calls_otherwise_is_an_error(
    layout: Layout, proxy: Proxy, path: str
) -> None:
    proxy.faults = [
        Fault("PUT .*manifests", status=201, headers={"Docker-Content-Digest": "sha256:" + "0" * 64})
    ]
    with pytest.raises(WrongDigest, match="the registry says sha256:000"):
        send(layout, proxy.host, image("a", add(layout, "a", content(path)), path))


def test_a_damaged_file_of_the_layout_is_named(layout: Layout, proxy: Proxy, path: str) -> None:
    root = add(layout, "a", content(path, LARGE))
    blob = layout.blob(layout.image("a").manifest.layers[0].digest)
    blob.write_bytes(content("other", LARGE))
    with pytest.raises(CellblockError, match=f"{blob}: its content has another digest"):
        send(layout, proxy.host, image("a", root, path))
    blob.write_bytes(content(path, LARGE))
    send(layout, proxy.host, image("a", root, path))


def test_a_failed_push_goes_on_with_what_lacks(layout: Layout, proxy: Proxy, path: str) -> None:
    item = image("a", add(layout, "a", *(content(f"{path}{n}", LARGE // 4) for n in range(4))), path)
    proxy.faults = [Fault("PUT .*manifests", status=403)]
    with pytest.raises(Denied):
        send(layout, proxy.host, item)
    proxy.seen.clear()
    (result,) = send(layout, proxy.host, item)
    assert result.sent == 0
    assert proxy.uploaded() == 0
    assert result.moved == ("t",)


@pytest.mark.parametrize("met", [True, False], ids=["during a push", "before it"])
def test_a_registry_that_restarts_is_waited_for(
    layout: Layout, path: str, tmp_path: Path, *, met: bool
) -> None:
    port = free_port()
    root = add(layout, "a", content(path, LARGE))
    client = Registry(f"127.0.0.1:{port}")
    if met:
        with running_registry(tmp_path / "first", storage=tmp_path / "storage", port=port):
            client.session()
    with ThreadPoolExecutor(1) as pool:
        pushing = pool.submit(push, layout, client, [image("a", root, path)], Events())
        time.sleep(2)
        assert not pushing.done(), "it waits"
        with running_registry(tmp_path / "again", storage=tmp_path / "storage", port=port) as running:
            pushing.result(60)
            assert pulled(running.host, path, "t", tmp_path / "pulled") == root.digest


def test_a_name_that_does_not_exist_is_not_waited_for_long(layout: Layout, path: str) -> None:
    started = time.monotonic()
    with pytest.raises(RegistryUnreachable):
        send(layout, "no-such-host.invalid", image("a", add(layout, "a", b"x"), path))
    assert time.monotonic() - started < 8


def test_nobody_there_is_said_with_the_address(layout: Layout, path: str) -> None:
    with pytest.raises(RegistryUnreachable, match=r"127\.0\.0\.1:1: .*Connection refused"):
        send(
            layout,
            "127.0.0.1:1",
            image("a", add(layout, "a", b"x"), path),
            options=ConnectionOptions(attempts=1),
        )


def test_a_download_goes_on_where_it_broke(layout: Layout, proxy: Proxy, path: str) -> None:
    root = add(layout, "a", content(path, LARGE))
    send(layout, proxy.host, image("a", root, path))
    (layer,) = layout.image("a").manifest.layers
    proxy.faults = [Fault("GET .*blobs", times=2, drop_download=2_000_000)]
    repository = Registry(proxy.host).repository(path)
    assert b"".join(blob_chunks(repository, layer)) == content(path, LARGE)
    ranges = [seen.headers.get("Range") for seen in proxy.seen if "/blobs/sha256" in seen.path]
    assert len([each for each in ranges if each]) == 2


def test_a_download_whose_connection_breaks_at_its_end(layout: Layout, proxy: Proxy, path: str) -> None:
    """There is no rest to ask for: registries answer 416 to that. It is read in blocks of 256 KiB."""
    whole = content(path, 512 * 1024)
    send(layout, proxy.host, image("a", add(layout, "a", whole), path))
    (layer,) = layout.image("a").manifest.layers
    proxy.faults = [Fault("GET .*blobs", drop_after_all=True)]
    assert b"".join(blob_chunks(Registry(proxy.host).repository(path), layer)) == whole
    assert len([seen for seen in proxy.seen if seen.method == "GET" and "/blobs/sha256" in seen.path]) == 1


def test_a_download_that_is_changed_is_refused(layout: Layout, proxy: Proxy, path: str) -> None:
    send(layout, proxy.host, image("a", add(layout, "a", content(path)), path))
    (layer,) = layout.image("a").manifest.layers
    proxy.faults = [Fault("GET .*blobs", times=99, corrupt_download=True)]
    with pytest.raises(WrongDigest, match=layer.digest):
        list(blob_chunks(Registry(proxy.host).repository(path), layer))
