# SPDX-License-Identifier: Apache-2.0
"""Runs an HTTP server whose answers a function gives; each request has a thread, so it may wait."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str, str, Message, bytes], tuple[int, bytes]]
"""Method, path, headers and body of a request -> status and text."""


@contextmanager
def serving(answer: Answer, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The URL of a server that answers so, at a port of `address` that is free; by https with `tls`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, text = answer(self.command, self.path, self.headers, body)
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:
                self.close_connection = True

        do_GET = do_POST = do_DELETE = _do  # noqa: N815 - names of the standard library

        def log_message(self, format: str, *args: Any) -> None:
            """Not to the tests' output."""

    server = ThreadingHTTPServer((address, 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    server.block_on_close = False
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"{'https' if tls else 'http'}://{address}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
