# SPDX-License-Identifier: Apache-2.0
"""Finds ports on loopback that neither another worker of pytest nor the kernel will take.

A server that is told its port has to be told one before it binds it. One of the kernel's own choice (port 0)
may be given to somebody's connection in between: those are taken from the same range.
"""

from __future__ import annotations

import os
import random
import re
import socket
from collections.abc import Iterator

_FIRST, _END = 16_384, 32_768
"""Below what Linux takes for connections (ip_local_port_range: 32768 on)."""
_SHARES = 8


def _candidates() -> Iterator[int]:
    """This worker's share of the ports, each once; where to begin is chance: several pytests may run."""
    number = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0) % _SHARES
    ports = list(range(_FIRST + number, _END, _SHARES))
    random.SystemRandom().shuffle(ports)
    yield from ports


_PORTS = _candidates()


def free_port() -> int:
    """A port that nobody listens on, and that no other call in this process has had."""
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free below those of connections (ip_local_port_range)")
