# SPDX-License-Identifier: Apache-2.0
"""How a host is reached: TLS or plain HTTP, and through which proxy."""

from __future__ import annotations

import pytest

from cellblock.errors import UsageError
from cellblock.oci.registry.connection import ConnectionOptions, is_loopback, make_pool, proxy_of
from cellblock.oci.registry.errors import RegistryUnreachable
from cellblock.oci.registry.transport import Transport
from tests.ports import free_port


@pytest.mark.parametrize("host", ["localhost", "localhost:5000", "127.0.0.1:1", "127.9.9.9", "[::1]:5000"])
def test_loopback_may_speak_plain_http(host: str) -> None:
    assert is_loopback(host)
    assert ConnectionOptions().schemes(host) == ("https", "http")


@pytest.mark.parametrize(
    "host", ["registry.example", "10.0.0.1:5000", "localhost.example", "127.0.0.1.example"]
)
def test_others_may_only_when_asked_for(host: str) -> None:
    assert ConnectionOptions().schemes(host) == ("https",)
    assert ConnectionOptions(plain_http=True).schemes(host) == ("http",)
    assert ConnectionOptions(verify_tls=False).schemes(host) == ("https", "http")


def test_proxies_come_from_the_environment() -> None:
    environ = {"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "inside.example,.corp.example"}
    assert proxy_of("https", "registry.example:5000", environ) == "http://proxy.example:3128"
    assert proxy_of("http", "registry.example:5000", environ) is None
    assert proxy_of("https", "inside.example:5000", environ) is None
    assert proxy_of("https", "r.corp.example", environ) is None
    assert proxy_of("https", "127.0.0.1:5000", environ) is None


def test_a_proxy_that_cannot_be_used_is_named_without_its_password() -> None:
    options = ConnectionOptions(environ={"HTTPS_PROXY": "socks5://ada:sesame@proxy.example:1080"})
    with pytest.raises(UsageError, match=r"socks5://proxy\.example:1080") as caught:
        make_pool("https", "registry.example", options)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(("host", "tries"), [("127.0.0.1:PORT", 6), ("no-such-host.invalid", 3)])
def test_who_refuses_is_tried_six_times_and_who_is_nowhere_three(
    host: str, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """as docs/push.md says"""
    monkeypatch.setattr(Transport, "_sleep", lambda _self, _seconds: None)
    host = host.replace("PORT", str(free_port()))
    transport, made = Transport(host, ConnectionOptions(environ={})), 0

    def ask() -> None:
        nonlocal made
        made += 1
        transport.request("GET", f"http://{host}/v2/", "ask it")

    with pytest.raises(RegistryUnreachable):
        transport.retrying()(ask)
    assert made == tries
