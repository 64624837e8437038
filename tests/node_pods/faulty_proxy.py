# SPDX-License-Identifier: Apache-2.0
"""A proxy before an API server, over http, that fails as it is told."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


@dataclass
class FaultyProxy:
    """Passes requests on to `target`, http://HOST:PORT."""

    target: str
    url: str = ""
    status: int = 0
    """Answer everything with that, and pass nothing on."""
    silent_s: float = 0
    """Say nothing for so long."""
    before_answer: Callable[[str], None] = field(default=lambda method: None)
    """Called with the method, once the server has done what was asked."""


@contextmanager
def proxy(target: str) -> Iterator[FaultyProxy]:
    """A proxy to `target`."""
    one = FaultyProxy(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            time.sleep(one.silent_s)
            if one.status:
                status, text = one.status, b'{"message": "the proxy says so"}'
            else:
                connection = http.client.HTTPConnection(urlsplit(one.target).netloc, timeout=30)
                head = {"Content-Type": "application/json", "Accept": "application/json"}
                connection.request(self.command, self.path, body or None, head)
                answer = connection.getresponse()
                status, text = answer.status, answer.read()
                connection.close()
            one.before_answer(self.command)
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:
                self.close_connection = True

        do_GET = do_POST = do_DELETE = _do  # noqa: N815 - names of the standard library

        def log_message(self, format: str, *args: object) -> None:
            """Not to the tests' output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    one.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield one
    finally:
        server.shutdown()
        server.server_close()
