# SPDX-License-Identifier: Apache-2.0
"""Runs an HTTP proxy in front of a real Kubernetes' API server, which fails in the ways a test asks for."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from urllib.parse import urlsplit

from tests.node_pods.http_server import serving


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

    def answer(method: str, path: str, _headers: Message, body: bytes) -> tuple[int, bytes]:
        time.sleep(one.silent_s)
        if one.status:
            status, text = one.status, b'{"message": "the proxy says so"}'
        else:
            connection = http.client.HTTPConnection(urlsplit(one.target).netloc, timeout=30)
            head = {"Content-Type": "application/json", "Accept": "application/json"}
            connection.request(method, path, body or None, head)
            answered = connection.getresponse()
            status, text = answered.status, answered.read()
            connection.close()
        one.before_answer(method)
        return status, text

    with serving(answer) as one.url:
        yield one
