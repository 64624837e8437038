# SPDX-License-Identifier: Apache-2.0
"""Answers Prometheus over HTTP at /metrics, from the answers that poller.py keeps in memory."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cellblock_exporter.exposition import CONTENT_TYPE

# Connections at once; a scrape takes milliseconds, so more are not scrapers. Jobs can connect, too, and send
# a byte now and then: for one more, the oldest ends of the address that has most.
MOST_CONNECTIONS = 32
# Seconds for a scraper to send its request and to take the answer.
_TIMEOUT_S = 10


class Server(ThreadingHTTPServer):
    """Serves `page()` at /metrics."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], page: Callable[[], bytes]) -> None:
        super().__init__(address, _Handler)
        self.page = page
        # Connection -> address, the oldest first.
        self._open: dict[socket.socket, str] = {}
        self._lock = threading.Lock()

    def process_request(self, request: object, client_address: object) -> None:
        """Serve in a thread, and make a place for it."""
        assert isinstance(request, socket.socket)
        assert isinstance(client_address, tuple)
        with self._lock:
            if len(self._open) >= MOST_CONNECTIONS:
                self._end_one()
            self._open[request] = client_address[0]
        super().process_request(request, client_address)

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            with self._lock:
                self._open.pop(request, None)  # type: ignore[call-overload]

    def _end_one(self) -> None:
        """End the oldest connection of the address that has most. Its thread closes it."""
        most = Counter(self._open.values()).most_common(1)[0][0]
        oldest = next(one for one, address in self._open.items() if address == most)
        del self._open[oldest]
        with suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a scraper that hangs up is its own affair."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _TIMEOUT_S
    server_version = "cellblock-metrics"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, CONTENT_TYPE, self.server.page())
        elif path == "/":
            self._answer(200, "text/plain; charset=utf-8", b"Slurm's figures for Prometheus: /metrics\n")
        else:
            self._answer(404, "text/plain; charset=utf-8", b"There is /metrics alone.\n")

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """No line for each scrape."""
