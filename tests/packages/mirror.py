# SPDX-License-Identifier: Apache-2.0
"""Runs a small HTTP mirror of a folder, with Range requests, that fails in the ways a test asks for."""

from __future__ import annotations

import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class Mirror(ThreadingHTTPServer):
    """Serves `folder` on a free port of loopback."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.requests: Counter[str] = Counter()
        """How often each file was asked for."""
        self.sent = 0
        """Bytes of files that were sent."""
        self.breaks_after: int | None = None
        """Close the connection after so many bytes of each answer."""
        self.lies_about = ""
        """Files whose name holds this are served with their last byte changed."""
        self.answers: list[int] = []
        """Statuses of the next answers, before any file is served."""
        self.chunk_s = 0.0
        """Seconds before each 16 kB."""
        self.ranges = True
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def vanish(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: Mirror
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        mirror = self.server
        mirror.requests[self.path] += 1
        # A proxy is asked for whole URLs.
        path = mirror.folder / unquote(urlsplit(self.path).path).lstrip("/")
        if mirror.answers or not path.is_file():
            self.send_response(mirror.answers.pop(0) if mirror.answers else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = path.read_bytes()
        if mirror.lies_about and mirror.lies_about in self.path:
            data = data[:-1] + bytes([data[-1] ^ 1])
        asked = self.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and mirror.ranges else 0
        if start >= len(data):
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        if mirror.breaks_after is not None and len(body) > mirror.breaks_after:
            body = body[: mirror.breaks_after]
            self.close_connection = True
        for at in range(0, len(body), 1 << 14):
            if mirror.chunk_s:
                time.sleep(mirror.chunk_s)
            self.wfile.write(body[at : at + (1 << 14)])
            mirror.sent += len(body[at : at + (1 << 14)])

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr."""
