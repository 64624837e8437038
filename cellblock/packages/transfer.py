# SPDX-License-Identifier: Apache-2.0
"""Reads one file from one mirror, over HTTP or from a folder, beginning at any byte.

It raises why that failed. store.py checks the SHA-256, resumes, and tries the next mirror.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from cellblock.process import Interrupted
from cellblock.retries import retry_after

# Seconds: a mirror that does not answer for that long is tried again, then left for the next one.
_TIMEOUT = urllib3.Timeout(connect=15, read=30)
# A mirror's own Retry-After counts up to this many seconds.
_PATIENCE_S = 60.0
_CHUNK = 1 << 18


class Missing(Exception):
    """The mirror says that it has no such file."""


class Broken(Exception):
    """The connection or the mirror failed; trying again can help, after `retry_after_s` where it asks."""

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Shorter(Exception):
    """The mirror's file ends before the place from which it was asked for."""


class Refused(Exception):
    """The mirror will not hand the file out, and trying again does not help."""


class Transfers:
    """Connections to mirrors, kept open and shared by `threads` threads.

    Proxies are taken from the environment (http_proxy, https_proxy, no_proxy), as apt takes them. When
    somebody sets `stopped`, whoever reads gets Interrupted with the next bytes.
    """

    def __init__(self, threads: int, stopped: threading.Event | None = None) -> None:
        self._threads = threads
        self._pools: dict[str, urllib3.PoolManager] = {}
        self._lock = threading.Lock()
        self._open: set[urllib3.BaseHTTPResponse] = set()
        self._stopped = stopped or threading.Event()

    def stop(self) -> None:
        """End all that runs: whoever reads gets Interrupted."""
        self._stopped.set()
        with self._lock:
            for response in self._open:
                # Wakes a thread that waits for bytes; the connection may have ended by itself.
                try:
                    response.shutdown()
                except (OSError, ValueError, RuntimeError):
                    continue

    def close(self) -> None:
        """Close the connections."""
        for pool in self._pools.values():
            pool.clear()

    @contextmanager
    def read(self, uri: str, start: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """The file at `uri` from byte `start` on, if the mirror can do that: (where it begins, bytes).

        Raises Missing, Shorter, Broken or Refused, also while the bytes are read; Interrupted after `stop`.
        """
        if self._stopped.is_set():
            raise Interrupted("stopped")
        if urlsplit(uri).scheme in ("file", "copy"):
            with _read_local(uri, start) as chunks:
                yield start, self._until_stopped(chunks)
            return
        headers = {"Accept-Encoding": "identity", "User-Agent": "cellblock"}
        if start:
            headers["Range"] = f"bytes={start}-"
        try:
            response = self._pool(uri).request(
                "GET", uri, headers=headers, preload_content=False, retries=urllib3.Retry(0, redirect=5)
            )
        except urllib3.exceptions.HTTPError as error:
            proxy = urlsplit(_proxy(uri)).netloc.rpartition("@")[2]
            through = f" (through the proxy {proxy})" if proxy else ""
            raise Broken(_reason(error) + through) from error
        with self._lock:
            self._open.add(response)
        try:
            # `stop` may have come between the request and now, and then it did not see this response.
            if self._stopped.is_set():
                raise Interrupted("stopped")
            yield _begins_at(response, start), self._until_stopped(_chunks(response))
        finally:
            with self._lock:
                self._open.discard(response)
            # What is left unread would be taken for the next answer.
            response.close()
            response.release_conn()

    def _until_stopped(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            if self._stopped.is_set():
                raise Interrupted("stopped")
            yield chunk
        if self._stopped.is_set():
            raise Interrupted("stopped")

    def _pool(self, uri: str) -> urllib3.PoolManager:
        proxy = _proxy(uri)
        with self._lock:
            if proxy not in self._pools:
                self._pools[proxy] = (
                    urllib3.ProxyManager(proxy, maxsize=self._threads, timeout=_TIMEOUT)
                    if proxy
                    else urllib3.PoolManager(maxsize=self._threads, timeout=_TIMEOUT)
                )
            return self._pools[proxy]


def _proxy(uri: str) -> str:
    """The proxy for `uri` that the environment names; empty when it names none."""
    parts, proxies = urlsplit(uri), getproxies()
    return "" if proxy_bypass(parts.netloc) else proxies.get(parts.scheme, proxies.get("all", ""))


def _begins_at(response: urllib3.BaseHTTPResponse, start: int) -> int:
    """Where the body begins (RFC 9110, 14 and 15). Raises Missing, Shorter, Broken or Refused."""
    status = response.status
    if status == 200:
        return 0
    if status == 206:
        begins = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
        if begins.strip() == str(start):
            return start
        raise Broken("the mirror answers with another range than was asked for")
    if status in (404, 410):
        raise Missing(f"HTTP {status}")
    if status == 416:
        raise Shorter
    if status in (408, 425, 429) or status >= 500:
        asked = retry_after(response.headers)
        raise Broken(f"HTTP {status}", None if asked is None else min(asked, _PATIENCE_S))
    raise Refused(f"HTTP {status} {response.reason or ''}".strip())


def _chunks(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    try:
        yield from response.stream(_CHUNK, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Broken(_reason(error)) from error


@contextmanager
def _read_local(uri: str, start: int) -> Iterator[Iterator[bytes]]:
    path = Path(unquote(urlsplit(uri).path))
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise Missing("no such file") from error
    except OSError as error:
        raise Refused(error.strerror or str(error)) from error
    with file:
        file.seek(start)
        yield iter(lambda: file.read(_CHUNK), b"")


def _reason(error: Exception) -> str:
    """The last sentence of urllib3's nested errors, without the objects' addresses."""
    cause: BaseException = error
    while True:
        inner = getattr(cause, "reason", None) or cause.__cause__
        if not isinstance(inner, BaseException):
            break
        cause = inner
    text = str(cause)
    return text.rpartition(">: ")[2] or type(cause).__name__
