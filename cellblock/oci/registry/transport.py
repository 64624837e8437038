# SPDX-License-Identifier: Apache-2.0
"""Sends requests to one registry: keeps connections, repeats and redirects requests, and explains errors.

A request that fails for a reason that may pass is made again after a growing, jittered wait, or after the
time that the registry named; all threads then wait for that registry. Every other failure is raised at once.
"""

from __future__ import annotations

import errno
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

import urllib3
from tenacity import Retrying
from urllib3 import exceptions
from urllib3.response import BaseHTTPResponse

from cellblock import __version__
from cellblock.errors import CellblockError
from cellblock.oci.registry.connection import ConnectionOptions, Scheme, make_pool
from cellblock.oci.registry.errors import (
    ConnectionLost,
    RateLimited,
    RegistryError,
    RegistryUnreachable,
    SpeaksPlainHttp,
    Transient,
)
from cellblock.retries import retrying

USER_AGENT = f"cellblock/{__version__}"

# The largest manifest that registries must take (distribution-spec 1.1, "Pushing manifests"): 4 MiB.
MANIFEST_LIMIT = 4 * 1024 * 1024
_ERROR_LIMIT = 64 * 1024
_REDIRECTS = 5
_FOLLOWED = (301, 302, 303, 307, 308)


class Source(Protocol):
    """A body: what has `read`."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` bytes; none at the end."""


Body = bytes | Source
Notice = Callable[[str], None]
"""Takes a sentence about a wait, for the person who watches."""


@dataclass(frozen=True)
class Answer:
    """A response that was read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class Stopped(CellblockError):
    """Another part of the same work failed: go no further."""


class Transport:
    """Requests to registry `host`.

    `notice` is told of waits of more than a moment; `stopped` ends waiting when it is set.
    """

    def __init__(
        self,
        host: str,
        options: ConnectionOptions | None = None,
        *,
        notice: Notice = lambda _: None,
        stopped: threading.Event | None = None,
    ) -> None:
        self.host = host
        self.options = options or ConnectionOptions()
        self.stopped = stopped or threading.Event()
        self._notice = notice
        self._pools: dict[tuple[Scheme, str], urllib3.PoolManager] = {}
        self._lock = threading.Lock()
        self._not_before = 0.0
        self.reached = False
        """Whether the host ever answered: then a connection that fails is a fault that may pass."""

    def request(
        self,
        method: str,
        url: str,
        doing: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        limit: int = MANIFEST_LIMIT,
    ) -> Answer:
        """One request and its whole answer, whatever its status.

        `doing` completes "could not ..." in errors. Raises ConnectionLost (RegistryUnreachable when
        nothing was reached) and RegistryError; does not try again: `retrying` does. An answer over `limit`
        bytes is refused.
        """
        with self.open(method, url, doing, headers=headers, body=body) as response:
            limit = limit if response.status < 400 else _ERROR_LIMIT
            try:
                data = response.read(limit + 1)
            except exceptions.HTTPError as error:
                raise self._lost(doing, error) from error
            if len(data) > limit and response.status < 400:
                raise RegistryError(
                    f"{self.host}: could not {doing}: its answer is over {limit} bytes long",
                    hint="that is no manifest; check the address of the registry",
                    status=response.status,
                )
            return Answer(response.status, response.headers, data, response.url or url)

    @contextmanager
    def open(
        self,
        method: str,
        url: str,
        doing: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
    ) -> Iterator[BaseHTTPResponse]:
        """One request; its body is read by the caller. GET and HEAD follow redirects. Raises as `request`."""
        self._pause()
        response = self._follow(method, url, doing, dict(headers or {}), body)
        try:
            yield response
        finally:
            # A connection whose answer was not read to the end cannot be used again.
            response.release_conn() if response.closed else response.close()

    def retrying(self) -> Retrying:
        """Attempts at one thing while they raise Transient (`cellblock.retries`)."""
        return retrying(Transient, self._attempts, sleep=self._sleep, before_sleep=self._hold)

    # -- inside --------------------------------------------------------------------------------

    def _attempts(self, error: Transient) -> int:
        """How often to try before `error` is raised."""
        if (error.retry_after_s or 0) > self.options.patience_s:
            return 1
        if isinstance(error, RegistryUnreachable) and not (error.refused or self.reached):
            return min(self.options.attempts, self.options.unreachable_attempts)
        return self.options.attempts

    def _hold(self, why: Transient, seconds: float) -> None:
        """Say that there is a wait; after a 429 every thread that speaks to this host waits with us."""
        if isinstance(why, RateLimited):
            with self._lock:
                self._not_before = max(self._not_before, time.monotonic() + seconds)
        if seconds >= 1:
            self._notice(f"{why.message}; trying again in {seconds:.0f} s")

    def _follow(
        self, method: str, url: str, doing: str, headers: dict[str, str], body: Body | None
    ) -> BaseHTTPResponse:
        headers.setdefault("User-Agent", USER_AGENT)
        for _ in range(_REDIRECTS + 1):
            response = self._send(method, url, doing, headers, body)
            location = response.headers.get("Location")
            if response.status not in _FOLLOWED or not location or method not in ("GET", "HEAD"):
                return response
            response.close()
            there = urljoin(url, location)
            if origin(there) != origin(url):
                # Object stores take a signature in the URL, and refuse a token that is not theirs.
                headers.pop("Authorization", None)
                if url.startswith("https:") and not there.startswith("https:") and self.options.verify_tls:
                    raise RegistryError(
                        f"{self.host}: could not {doing}: it redirects from TLS to plain http",
                        hint="have its storage served over https, or push with --no-tls-verify",
                    )
            url = there
        raise RegistryError(
            f"{self.host}: could not {doing}: more than {_REDIRECTS} redirects",
            hint="look at its configuration",
        )

    def _send(
        self, method: str, url: str, doing: str, headers: Mapping[str, str], body: Body | None
    ) -> BaseHTTPResponse:
        arguments: dict[str, Any] = {"headers": headers, "body": body}
        try:
            response = self._pool(url).request(
                method, url, preload_content=False, redirect=False, decode_content=False, **arguments
            )
        except exceptions.SSLError as error:
            raise self._tls_error(doing, error) from error
        except (exceptions.HTTPError, OSError) as error:
            raise self._lost(doing, error) from error
        self.reached = True
        return response

    def _pool(self, url: str) -> urllib3.PoolManager:
        parts = urlsplit(url)
        scheme: Scheme = "https" if parts.scheme == "https" else "http"
        with self._lock:
            key = scheme, parts.netloc
            if key not in self._pools:
                self._pools[key] = make_pool(scheme, parts.netloc, self.options)
            return self._pools[key]

    def _tls_error(self, doing: str, error: exceptions.SSLError) -> RegistryError:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        text = f"{self.host}: could not {doing}"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return RegistryError(
                f"{text}: its certificate is not trusted: {cause.verify_message}",
                hint=f"put its authority into /etc/containers/certs.d/{self.host}/ca.crt, or give --ca",
            )
        if getattr(cause, "reason", None) in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            return SpeaksPlainHttp(
                f"{text}: it speaks plain http, not TLS",
                hint="give --plain-http if everybody on the way there can be trusted",
            )
        return self._lost(doing, error)

    def _lost(self, doing: str, error: Exception) -> ConnectionLost:
        unreachable = isinstance(error, (exceptions.NewConnectionError, exceptions.ConnectTimeoutError))
        reason = _plain(error)
        if isinstance(error, exceptions.ProxyError):
            unreachable, reason = True, f"the proxy does not let us through: {reason}"
        what = "no connection" if unreachable else "the connection broke"
        lost = RegistryUnreachable if unreachable else ConnectionLost
        found = lost(
            f"{self.host}: could not {doing}: {what}: {reason}",
            hint="check the registry's name, that it runs, and the network (proxies: HTTPS_PROXY, NO_PROXY)"
            if unreachable
            else "run this again: what arrived is not sent again",
        )
        if isinstance(found, RegistryUnreachable):
            found.refused = reason == os.strerror(errno.ECONNREFUSED)
        return found

    def _pause(self) -> None:
        with self._lock:
            seconds = self._not_before - time.monotonic()
        self._sleep(seconds)

    def _sleep(self, seconds: float) -> None:
        if self.stopped.wait(max(0.0, seconds)):
            raise Stopped(f"{self.host}: stopped, because another part failed")


def origin(url: str) -> tuple[str, str]:
    """Scheme and host with port: what a token is for."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()


def _plain(error: BaseException) -> str:
    """What the system said, without urllib3's objects in it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        seen = seen.__cause__ or seen.__context__ or getattr(seen, "reason", None)
        if not isinstance(seen, BaseException):
            break
    if isinstance(error, exceptions.TimeoutError):
        return "no answer in time"
    text = error.args[-1] if error.args else error
    return str(text).rpartition(">: ")[2] or type(error).__name__
