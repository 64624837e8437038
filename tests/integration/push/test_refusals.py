# SPDX-License-Identifier: Apache-2.0
"""Registries that refuse, that are reached in another way, and that ask who is there."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.events import Events
from cellblock.oci.layout import Layout
from cellblock.oci.push import push
from cellblock.oci.registry import (
    ConnectionOptions,
    CredentialsMissing,
    Denied,
    Registry,
    RegistryError,
    RegistryFull,
)
from tests.integration.push.pushing import LARGE, add, content, image, pulled, send, skopeo_sees
from tests.integration.registry import PASSWORD, USER, running_registry
from tests.integration.registry_proxy import Proxy
from tests.memory_disk import memory_disk


def test_a_full_registry_is_named_and_the_next_run_carries_on(
    layout: Layout, tmp_path: Path, path: str
) -> None:
    root = add(layout, "a", content(path), content(path + "large", LARGE))
    with (
        memory_disk(tmp_path / "small", "size=4m") as storage,
        running_registry(tmp_path / "full", storage=storage) as full,
    ):
        with pytest.raises(RegistryFull, match="no room left"):
            send(layout, full.host, image("a", root, path))
        subprocess.run(["mount", "-o", "remount,size=64m", str(storage)], check=True)
        send(layout, full.host, image("a", root, path))
        assert pulled(full.host, path, "t", tmp_path / "pulled") == root.digest


def test_a_read_only_registry_says_so(layout: Layout, tmp_path: Path, path: str) -> None:
    root = add(layout, "a", content(path))
    with (
        running_registry(tmp_path / "r", read_only=True) as registry,
        pytest.raises(RegistryError, match=r"405.*read-only") as caught,
    ):
        send(layout, registry.host, image("a", root, path))
    assert caught.value.hint


def test_a_push_goes_through_the_proxy_of_the_environment(
    layout: Layout, proxy: Proxy, path: str, tmp_path: Path
) -> None:
    options = replace(environment(tmp_path, HTTP_PROXY=f"http://ada:se%3Asame@{proxy.host}"), plain_http=True)
    root = add(layout, "a", content(path, LARGE))
    send(layout, "registry.example:5000", image("a", root, path), options=options)
    assert skopeo_sees(proxy.host, path, "t") == root.digest
    assert {seen.headers["Host"] for seen in proxy.seen if seen.method == "PATCH"} == {
        "registry.example:5000"
    }
    assert {seen.headers["proxy-authorization"] for seen in proxy.seen if seen.method == "PATCH"} == {
        "Basic YWRhOnNlOnNhbWU="  # ada:se:same
    }


def test_a_registry_with_tls_is_believed_when_its_authority_is_known(
    layout: Layout, tmp_path: Path, path: str
) -> None:
    item = image("a", add(layout, "a", content(path)), path)
    certificate, key = self_signed(tmp_path)
    with running_registry(tmp_path / "r", certificate=(certificate, key)) as registry:
        with pytest.raises(RegistryError, match=r"its certificate is not trusted: self.signed") as caught:
            send(layout, registry.host, item)
        assert f"/etc/containers/certs.d/{registry.host}/ca.crt" in caught.value.hint
        with pytest.raises(RegistryError, match="HTTP request to an HTTPS server"):
            send(layout, registry.host, item, options=ConnectionOptions(plain_http=True))
        send(layout, registry.host, item, options=ConnectionOptions(ca=certificate))
        send(layout, registry.host, item, options=ConnectionOptions(verify_tls=False))


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, and its key."""
    certificate, key = folder / "registry.crt", folder / "registry.key"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=tests", "-days", "2"]
    argv += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(argv, check=True, capture_output=True)
    return certificate, key


# -- who asks ------------------------------------------------------------------------------------------


def environment(home: Path, **more: str) -> ConnectionOptions:
    return ConnectionOptions(environ={"HOME": str(home), "XDG_RUNTIME_DIR": str(home), **more})


def test_basic_authentication(layout: Layout, tmp_path: Path, path: str) -> None:
    item = image("a", add(layout, "a", content(path)), path)
    with running_registry(tmp_path / "r", password=True) as registry:
        with pytest.raises(CredentialsMissing) as caught:
            send(layout, registry.host, item, options=environment(tmp_path))
        assert registry.host in caught.value.message
        assert f"{tmp_path}/.docker/config.json (not there)" in caught.value.message
        wrong = environment(tmp_path, CELLBLOCK_REGISTRY_USER=USER, CELLBLOCK_REGISTRY_PASSWORD="wrong")
        with pytest.raises(Denied, match=rf"does not accept {USER} .*CELLBLOCK_REGISTRY_USER"):
            send(layout, registry.host, item, options=wrong)
        file = tmp_path / "auth.json"
        login = ["skopeo", "login", "--authfile", str(file), "--tls-verify=false", "-u", USER, "-p", PASSWORD]
        subprocess.run([*login, registry.host], check=True, capture_output=True)
        send(layout, registry.host, item, options=environment(tmp_path, REGISTRY_AUTH_FILE=str(file)))


def test_a_token_that_expires_amid_a_push_is_renewed(
    layout: Layout, proxy: Proxy, path: str, tmp_path: Path
) -> None:
    proxy.uses_of_a_token = 2
    root = add(layout, "a", content(path, LARGE), content(path + "2", LARGE))
    # One at a time: a token that ends by its uses could be used up by others before its first.
    registry = Registry(proxy.host, environment(tmp_path))
    push(layout, registry, [image("a", root, path)], Events(), jobs=1)
    assert len(proxy.tokens) > 3
    proxy.uses_of_a_token = None
    assert skopeo_sees(proxy.host, path, "t") == root.digest


def test_a_token_server_that_wants_credentials_is_named(
    layout: Layout, proxy: Proxy, path: str, tmp_path: Path
) -> None:
    proxy.uses_of_a_token = 10**6
    proxy.password = "Basic YWRhOnNlc2FtZQ=="  # ada:sesame
    item = image("a", add(layout, "a", content(path)), path)
    with pytest.raises(CredentialsMissing, match=r"token server .* asks for credentials"):
        send(layout, proxy.host, item, options=environment(tmp_path))
    known = environment(tmp_path, CELLBLOCK_REGISTRY_USER=USER, CELLBLOCK_REGISTRY_PASSWORD=PASSWORD)
    send(layout, proxy.host, item, options=known)
    assert len(proxy.tokens) <= 3, "tokens are kept and used again"
