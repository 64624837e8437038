# SPDX-License-Identifier: Apache-2.0
"""Serves this machine's package archives over HTTP on loopback: Docker's builds cannot mount them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote


class _Handler(SimpleHTTPRequestHandler):
    """Serves what lies below the archives under their own absolute paths, and nothing else."""

    protocol_version = "HTTP/1.1"  # one connection for all packages of an apt

    def __init__(self, archives: tuple[Path, ...], *arguments: Any, **named: Any) -> None:
        self._archives = archives
        super().__init__(*arguments, **named)

    def translate_path(self, path: str) -> str:
        """The file behind a request; one that is not there for what is not served."""
        asked = Path(unquote(path.partition("?")[0])).resolve()
        served = any(asked.is_relative_to(archive) for archive in self._archives)
        return str(asked if served and not asked.is_dir() else Path("/nonexistent"))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: apt reports what it could not fetch."""


@contextmanager
def serve(archives: Sequence[Path], sources: Sequence[str]) -> Iterator[list[str]]:
    """Serve the folders `archives` while the context lasts; gives `sources` with file: replaced.

    `sources` are lines of sources.list(5). Nothing is served without archives.
    """
    if not archives:
        yield list(sources)
        return
    folders = tuple(archive.resolve() for archive in archives)
    # Port 0: one that is free. Builds side by side have a server each.
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, folders))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="archive", daemon=True)
    thread.start()
    try:
        yield [_over_http(source, server.server_port) for source in sources]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _over_http(source: str, port: int) -> str:
    def replace(match: re.Match[str]) -> str:
        return f"http://127.0.0.1:{port}{quote(str(Path(match[1]).resolve()))}"

    return re.sub(r"(?<=\s)(?:file|copy):/*(/\S+)", replace, source)
