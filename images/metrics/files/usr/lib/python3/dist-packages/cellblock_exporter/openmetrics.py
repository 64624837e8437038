# SPDX-License-Identifier: Apache-2.0
"""Gets Slurm's figures from slurmctld's own endpoints (25.11.5 on), checks each line, and passes it on.

Names of these metrics say bytes, but values of memory are in MiB (seen in 26.05.5): they are converted.
commands.py is for older releases of Slurm.
"""

from __future__ import annotations

import re
import socket
import time

from cellblock_exporter.source import AskError

# Path -> kind. Nodes first: their memory tells the unit.
_PATHS = {
    "nodes": "/metrics/nodes",
    "partitions": "/metrics/partitions",
    "jobs": "/metrics/jobs",
    "users": "/metrics/jobs-users-accts",
    "scheduler": "/metrics/scheduler",
}
# 10 nodes' figures of 60 bytes for each of 65,000 nodes, twice.
_MOST_BYTES = 80 * 2**20
_MIB = 2**20
# Values of slurm_node_memory_bytes below it are MiB: no node has so few bytes of memory, or so many MiB.
_MIB_BELOW = 2**26
_SAMPLE = re.compile(
    rb"([a-z_][a-z0-9_]*)"
    rb'(\{[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-z_]+="(?:[^"\\\n]|\\[\\"n])*")*\})?'
    rb" (-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
)
_COMMENT = re.compile(rb"# (?:HELP|TYPE) [a-z_][a-z0-9_]* [^\n]*")
_MEMORY = re.compile(
    rb"slurm_node_memory_(?:\w+_)?bytes|slurm_\w*jobs_memory_alloc|slurm_partition_nodes_mem_\w+"
)


class OpenMetrics:
    """Asks the endpoints of slurmctld at `addresses`, host and port: of two, the one that acts answers."""

    name = "openmetrics"
    kinds = tuple(_PATHS)

    def __init__(self, *addresses: tuple[str, int]) -> None:
        self._addresses = addresses
        self._in_mib = True

    def ask(self, kind: str, timeout_s: float) -> bytes:
        """See Source."""
        deadline, failures = time.monotonic() + timeout_s, []
        for number, (host, port) in enumerate(self._addresses, 1):
            # Time is left for the others.
            until = time.monotonic() + (deadline - time.monotonic()) * number / len(self._addresses)
            try:
                body = _get(host, port, _PATHS[kind], until)
                break
            except OSError as error:
                failures.append(f"http://{host}:{port}{_PATHS[kind]}: {error}")
        else:
            raise AskError("; ".join(failures))
        if kind == "nodes":
            self._in_mib = _is_in_mib(body)
        return passed_on(body, in_mib=self._in_mib)


def _get(host: str, port: int, path: str, deadline: float) -> bytes:
    """The body of the answer; OSError when there is none in time, or another one than 200."""
    with socket.create_connection((host, port), _left(deadline)) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        answer = bytearray()
        while True:
            connection.settimeout(_left(deadline))
            part = connection.recv(2**18)
            if not part:
                break
            answer += part
            if len(answer) > _MOST_BYTES:
                raise OSError(f"the answer is longer than {_MOST_BYTES} bytes")
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    status, _, fields = head.partition(b"\r\n")
    if b" 200 " not in status + b" ":
        raise OSError(f"the answer is {status[:80].decode('ascii', 'replace')!r}, not 200")
    length = re.search(
        rb"^content-length: *(\d+) *$", fields.replace(b"\r", b""), re.IGNORECASE | re.MULTILINE
    )
    if length and int(length[1]) != len(body):
        raise OSError(f"the answer was cut short: {len(body)} of {int(length[1])} bytes")
    return body


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no whole answer in time")
    return left


def _is_in_mib(nodes: bytes) -> bool:
    totals = re.findall(rb"^slurm_node_memory_bytes\{[^\n]*\} (\d+)$", nodes, re.MULTILINE)
    return max(map(int, totals), default=0) < _MIB_BELOW


def passed_on(body: bytes, *, in_mib: bool) -> bytes:
    """The lines of `body` that Prometheus can read, with memory in bytes.

    One line that it cannot read would cost the whole scrape.
    """
    lines = []
    for line in body.split(b"\n"):
        found = _SAMPLE.fullmatch(line)
        if found is None:
            if _COMMENT.fullmatch(line):
                lines.append(line)
        elif in_mib and _MEMORY.fullmatch(found[1]):
            lines.append(b"%b%b %d" % (found[1], found[2] or b"", round(float(found[3]) * _MIB)))
        else:
            lines.append(line)
    return b"".join(line + b"\n" for line in lines)
