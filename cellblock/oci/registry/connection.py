# SPDX-License-Identifier: Apache-2.0
"""Decides how a registry's host is reached: TLS or not, which authorities, through which proxy.

Certificates follow containers-certs.d(5): `ca.crt` and other `*.crt` are authorities, `NAME.cert` with
`NAME.key` is shown to the registry. Proxies follow HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import urllib3

from cellblock.errors import CellblockError, UsageError

Scheme = Literal["https", "http"]

CERTIFICATES = (Path("/etc/containers/certs.d"), Path("/etc/docker/certs.d"))

# http.client reads a body in pieces of this size: its 16 KiB cost twice the processor time of this.
_BLOCK = 256 * 1024
_CONNECT_S = 15.0
# Silence after which a connection counts as broken. A registry that moves a finished blob of gigabytes to its
# place in an object store says nothing for as long as a minute.
_READ_S = 180.0


@dataclass(frozen=True)
class ConnectionOptions:
    """What a user may say about reaching registries.

    `plain_http` never tries TLS; `verify_tls=False` takes any certificate, and plain http from hosts that
    have no TLS. Loopback hosts may always speak plain http. `ca` is a file of authorities to trust besides
    the machine's. `attempts`, and `patience_s`, the longest wait in seconds that a registry may ask
    for, bound retries.
    """

    plain_http: bool = False
    verify_tls: bool = True
    ca: Path | None = None
    connections: int = 4
    attempts: int = 6
    # A host that cannot be reached at all is more often a wrong name than a passing fault.
    unreachable_attempts: int = 3
    patience_s: float = 300.0
    connect_timeout_s: float = _CONNECT_S
    read_timeout_s: float = _READ_S
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def schemes(self, host: str) -> tuple[Scheme, ...]:
        """Schemes to try, in this order."""
        if self.plain_http:
            return ("http",)
        return ("https", "http") if not self.verify_tls or is_loopback(host) else ("https",)


def is_loopback(host: str) -> bool:
    """Whether `host`, with or without a port, is this machine and no other by its very name."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def make_pool(scheme: Scheme, host: str, options: ConnectionOptions) -> urllib3.PoolManager:
    """Connections to `host`, kept open and shared by threads.

    Raises UsageError for a file of authorities, a certificate or a proxy that cannot be used.
    """
    arguments: dict[str, Any] = {
        "maxsize": options.connections,
        "block": False,
        "retries": False,
        "blocksize": _BLOCK,
        "timeout": urllib3.Timeout(connect=options.connect_timeout_s, read=options.read_timeout_s),
        "ssl_context": _tls(host, options),
    }
    proxy = proxy_of(scheme, host, options.environ)
    if proxy is None:
        return urllib3.PoolManager(**arguments)
    parts = urlsplit(proxy)
    headers = None
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = urllib3.make_headers(proxy_basic_auth=login)
    if parts.scheme not in ("http", "https"):
        raise UsageError(
            f"proxy {_without_password(proxy)}: only http and https proxies can be used",
            hint=f"correct {scheme.upper()}_PROXY, or name {host} in NO_PROXY",
        )
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **arguments)


def proxy_of(scheme: Scheme, host: str, environ: Mapping[str, str]) -> str | None:
    """The URL of the proxy on the way to `host`; None without one."""
    if is_loopback(host):
        return None
    proxies = {
        name.lower().removesuffix("_proxy"): value
        for name, value in sorted(environ.items())  # the lower-case name, which sorts last, decides
        if name.lower().endswith("_proxy") and value
    }
    name = urlsplit(f"//{host}").hostname or host
    if urllib.request.proxy_bypass_environment(name, proxies):  # type: ignore[attr-defined]
        return None
    return proxies.get(scheme) or proxies.get("all")


def _without_password(proxy: str) -> str:
    parts = urlsplit(proxy)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _tls(host: str, options: ConnectionOptions) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not options.verify_tls:
        # It was asked for: no warning with each request.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    asked = options.ca or options.environ.get("CELLBLOCK_REGISTRY_CA")
    authorities = [Path(asked)] if asked else []
    shown: list[Path] = []
    for folder in CERTIFICATES:
        if (folder / host).is_dir():
            authorities += sorted((folder / host).glob("*.crt"))
            shown += sorted((folder / host).glob("*.cert"))
    try:
        for path in authorities:
            context.load_verify_locations(path)
        for path in shown:
            context.load_cert_chain(path, path.with_suffix(".key"))
    except (OSError, ssl.SSLError) as error:
        raise CellblockError(
            f"{path}: cannot be used as a certificate for {host}: {error}",
            hint="it must be PEM; a NAME.cert needs its NAME.key beside it",
        ) from error
    return context
