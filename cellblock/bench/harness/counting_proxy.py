# SPDX-License-Identifier: Apache-2.0
"""Passes connections on to a registry and counts the bytes of its answers: what a pull transfers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK = 1 << 16


class CountingProxy:
    """`address` (host:port) leads to the registry; `taken()` is what came from there since the last call."""

    def __init__(self, listening: socket.socket, upstream: tuple[str, int]) -> None:
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self._listening, self._upstream = listening, upstream
        self._count = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def taken(self) -> int:
        """Bytes of answers, with their headers, since this was last asked."""
        with self._lock:
            found, self._count = self._count, 0
        return found

    def _accept(self) -> None:
        with suppress(OSError):  # closed at the end
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._upstream)
                for source, target, counts in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=(source, target, counts), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                target.sendall(data)
                if counts:
                    with self._lock:
                        self._count += len(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def counting_proxy(upstream: str) -> Iterator[CountingProxy]:
    """A proxy on a free port of loopback, in front of `upstream` (host:port), until the block ends."""
    host, _, port = upstream.rpartition(":")
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield CountingProxy(listening, (host, int(port)))
