# SPDX-License-Identifier: Apache-2.0
"""Answers scrapes over HTTP, from what is in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cellblock_exporter.exposition import CONTENT_TYPE

# Connections at once; a scrape takes milliseconds, so more are not scrapers.
_MOST_CONNECTIONS = 32
# Seconds for a scraper to send its request and to take the answer.
_TIMEOUT_S = 10


class Server(ThreadingHTTPServer):
    """Serves `page()` at /metrics."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], page: Callable[[], bytes]) -> None:
        super().__init__(address, _Handler)
        self.page = page
        self.places = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Serve in a thread, while there is a place."""
        if not self.places.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]
            return
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self.places.release()

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
