# SPDX-License-Identifier: Apache-2.0
"""Runs a server that speaks S3, for a restic repository in a bucket (which restic makes)."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port

_START_S = 60.0


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Yields the repository's location; any keys will do."""
    port = free_port()
    log = folder / "s3.log"
    with log.open("wb") as out:
        argv = [sys.executable, "-m", "moto.server", "-p", str(port)]
        process = subprocess.Popen(argv, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
        yield f"s3:http://127.0.0.1:{port}/jails"
    finally:
        process.terminate()
        process.wait()
