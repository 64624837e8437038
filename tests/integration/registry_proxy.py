# SPDX-License-Identifier: Apache-2.0
"""Runs a proxy in front of a registry that commits the faults of networks and registries, as a test asks.

It can also ask for tokens, and is its own token server then.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_BLOCK = 16 * 1024


@dataclass
class Fault:
    """Done to requests whose "METHOD PATH" matches `pattern`, `times` times.

    `keep` has the registry keep what arrived before `drop_upload`; docker's own forgets the upload then.

    One of: answer with `status` (`headers`, `body`) without asking the registry; close both connections after
    `drop_upload` bytes of the request's body; after `drop_download` bytes of the answer's; flip a bit of the
    first byte of the request's body (`corrupt_upload`) or of the answer's (`corrupt_download`); hold back the
    answer that the registry gave (`lose_answer`); wait `pause_s` before each block of the answer; send the
    answer from the start to a request for a range (`ignore_range`); send all of the answer in chunks,
    and close both connections where the last chunk should come, which has no bytes (`drop_after_all`).
    """

    pattern: str
    times: int = 1
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    drop_upload: int | None = None
    keep: bool = False
    drop_download: int | None = None
    corrupt_upload: bool = False
    corrupt_download: bool = False
    lose_answer: bool = False
    pause_s: float = 0
    ignore_range: bool = False
    drop_after_all: bool = False


@dataclass(frozen=True)
class Seen:
    """A request that came, and the status it was answered with (0: none)."""

    method: str
    path: str
    status: int
    received: int
    """Bytes of its body that arrived here."""
    headers: Mapping[str, str] = field(repr=False)


class Proxy:
    """The proxy's state: `faults` to commit, and the requests that it has `seen`."""

    def __init__(self, registry: str) -> None:
        self.registry = registry
        self.host = ""
        self.faults: list[Fault] = []
        self.log: list[Seen] = []
        self.busy = 0
        self.uses_of_a_token: int | None = None
        """None: nobody needs one. Else after so many requests a token counts as expired."""
        self.tokens: dict[str, int] = {}
        self.password: str | None = None
        """What the token server wants as Authorization, when it is not for anybody."""
        self.kept: dict[str, str] = {}
        """Uploads that were kept after a break: their path, and the place to go on at."""
        self.lock = threading.Condition()

    @property
    def seen(self) -> list[Seen]:
        """All requests, once none is being served: a client can have its answer before we are done."""
        with self.lock:
            assert self.lock.wait_for(lambda: not self.busy, timeout=30), "requests never end"
            return self.log

    def count(self, pattern: str) -> int:
        """How many requests came whose "METHOD PATH" matches."""
        return sum(1 for seen in self.seen if re.search(pattern, f"{seen.method} {seen.path}"))

    def uploaded(self) -> int:
        """Bytes of blobs that arrived here."""
        return sum(seen.received for seen in self.seen if "/blobs/uploads/" in seen.path)

    def take(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times and re.search(fault.pattern, f"{method} {path}"):
                    fault.times -= 1
                    return fault
        return None


@contextmanager
def running_proxy(registry: str, address: str = "127.0.0.1") -> Iterator[Proxy]:
    """A proxy in front of the registry at that host, on a port of its own at an address of this machine."""
    proxy = Proxy(registry)

    class Handler(_Handler):
        state = proxy

    server = ThreadingHTTPServer((address, 0), Handler)
    server.daemon_threads = True
    proxy.host = f"{address}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


class _Dropped(Exception):
    """Both connections are to be closed."""


class _Handler(BaseHTTPRequestHandler):
    state: Proxy
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self) -> None:
        self._received, self._status = 0, 0
        # Asked as a forward proxy: whatever the host is called, the registry is meant.
        self.path = re.sub(r"^http://[^/]*", "", self.path)
        with self.state.lock:
            self.state.busy += 1
        try:
            self._handle()
        except (_Dropped, OSError, http.client.HTTPException):
            self.close_connection = True
            with_reset(self.connection)
        finally:
            with self.state.lock:
                self.state.log.append(
                    Seen(self.command, self.path, self._status, self._received, dict(self.headers.items()))
                )
                self.state.busy -= 1
                self.state.lock.notify_all()

    def _handle(self) -> None:
        if self.path.startswith("/token"):
            self._answer_token()
            return
        if not self._is_allowed():
            return
        fault = self.state.take(self.command, self.path)
        if fault and fault.status is not None:
            self._answer(fault.status, fault.headers, fault.body)
            return
        upstream = http.client.HTTPConnection(self.state.registry, timeout=30)
        try:
            self._forward(upstream, fault)
        finally:
            upstream.close()

    def _forward(self, upstream: http.client.HTTPConnection, fault: Fault | None) -> None:
        path, _, query = self.path.partition("?")
        if path in self.state.kept:
            # The place that the client knows is older than what the registry has by now.
            digest = "".join(f"&digest={each}" for each in parse_qs(query).get("digest", []))
            path, query = self.state.kept.pop(path), digest
            upstream.putrequest(self.command, path + digest, skip_host=True, skip_accept_encoding=True)
        else:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() == "authorization" and self.state.uses_of_a_token is not None:
                continue
            if fault and fault.keep and name.lower() in ("content-length", "content-range"):
                continue
            if fault and fault.ignore_range and name.lower() == "range":
                continue
            upstream.putheader(name, value)
        if fault and fault.keep:
            upstream.putheader("Content-Length", str(fault.drop_upload))
        upstream.endheaders()
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            data = self.rfile.read1(min(left, _BLOCK))
            if not data:
                raise _Dropped
            if fault and fault.corrupt_upload and self._received == 0:
                data = bytes([data[0] ^ 1]) + data[1:]
            if fault and fault.drop_upload is not None:
                data = data[: max(0, fault.drop_upload - self._received)]
            upstream.send(data)
            self._received += len(data)
            left -= len(data)
            if fault and fault.drop_upload is not None and self._received >= fault.drop_upload:
                if fault.keep:
                    kept = upstream.getresponse().getheader("Location") or ""
                    self.state.kept[self.path.partition("?")[0]] = kept.partition(self.state.host)[2]
                raise _Dropped
        answer = upstream.getresponse()
        if fault and fault.lose_answer:
            answer.read()
            raise _Dropped
        self._relay(answer, fault)

    def _relay(self, answer: http.client.HTTPResponse, fault: Fault | None) -> None:
        self.send_response_only(answer.status)
        self._status = answer.status
        for name, value in answer.getheaders():
            if name.lower() in ("connection", "transfer-encoding"):
                continue
            if fault and fault.drop_after_all and name.lower() == "content-length":
                self.send_header("Transfer-Encoding", "chunked")
            else:
                self.send_header(name, value)
        length = answer.getheader("Content-Length")
        if length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        sent = 0
        while data := answer.read1(_BLOCK):
            if fault and fault.pause_s:
                time.sleep(fault.pause_s)
            if fault and fault.corrupt_download and sent == 0:
                data = bytes([data[0] ^ 1]) + data[1:]
            if fault and fault.drop_download is not None:
                data = data[: fault.drop_download - sent]
            chunked = fault is not None and fault.drop_after_all
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
            sent += len(data)
            if fault and fault.drop_download is not None and sent >= fault.drop_download:
                # An end, and no reset: that would take with it what is on its way.
                self.close_connection = True
                return
        if fault and fault.drop_after_all:
            self.close_connection = True

    # -- tokens --------------------------------------------------------------------------------

    def _answer_token(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        if self.state.password is not None and self.headers.get("Authorization") != self.state.password:
            self._answer(401, {}, b"{}")
            return
        scopes = parse_qs(urlsplit(self.path).query).get("scope", [])
        with self.state.lock:
            token = f"token-{len(self.state.tokens)}"
            self.state.tokens[token] = 0
        text = json.dumps({"token": token, "expires_in": 300, "scopes": scopes})
        self._answer(200, {"Content-Type": "application/json"}, text.encode())

    def _is_allowed(self) -> bool:
        limit = self.state.uses_of_a_token
        if limit is None:
            return True
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        with self.state.lock:
            uses = self.state.tokens.get(token)
            if uses is not None and uses < limit:
                self.state.tokens[token] = uses + 1
                return True
        realm = f'Bearer realm="http://{self.state.host}/token",service="tests",error="invalid_token"'
        self._answer(401, {"WWW-Authenticate": realm}, b'{"errors":[{"code":"UNAUTHORIZED"}]}')
        return False

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self._status = status
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        if self.headers.get("Content-Length", "0") != "0":
            # As Go's server does: what is left of the body is not read, so the connection cannot go on.
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def with_reset(connection: socket.socket) -> None:
    """Close as a network does that breaks: the other side gets an error, and no end."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()
