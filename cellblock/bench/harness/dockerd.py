# SPDX-License-Identifier: Apache-2.0
"""Runs a private dockerd for measurements and tests, on a machine where Docker is only installed."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
import requests
from docker.errors import DockerException

from cellblock.bench.harness.scratch import unmount_below
from cellblock.errors import CellblockError
from cellblock.process import Interrupted, ProgramFailed, Programs

# Seconds until it answers: it starts containerd first.
_START_S = 60.0
_LOG_LINES = 10


@contextmanager
def private_dockerd(data: Path) -> Iterator[str]:
    """Run a dockerd that keeps everything in the folder `data`; gives its address for DOCKER_HOST.

    It has no network of its own (builds use this machine's) and touches no rule of iptables. It ends with
    the context, or with this process. Raises CellblockError when it is not installed or does not start.
    """
    if shutil.which("dockerd") is None:
        raise CellblockError("dockerd is not installed", hint="apt-get install docker.io runc")
    # Names of sockets may have 107 characters.
    run = Path(tempfile.mkdtemp(prefix="cellblock-dockerd-", dir="/run"))
    address = f"unix://{run}/sock"
    argv = ["dockerd", "--host", address, "--data-root", str(data)]
    argv += ["--exec-root", str(run / "exec"), "--pidfile", str(run / "pid")]
    argv += ["--storage-driver", "overlay2", "--bridge", "none", "--iptables=false", "--ip-masq=false"]
    programs, log = Programs(), deque[str](maxlen=_LOG_LINES)
    # A daemon thread: when nobody leaves the context (an interrupted pytest), the process can still end.
    thread = threading.Thread(target=_run, args=(programs, argv, log), name="dockerd", daemon=True)
    thread.start()
    try:
        _wait(address, thread, log)
        yield address
    finally:
        programs.stop()
        thread.join()
        unmount_below(run)
        unmount_below(data)
        shutil.rmtree(run, ignore_errors=True)


def _run(programs: Programs, argv: list[str], log: deque[str]) -> None:
    with suppress(ProgramFailed, Interrupted):
        programs.run(argv, on_line=log.append)


def _wait(address: str, thread: threading.Thread, log: deque[str]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and thread.is_alive():
        with suppress(DockerException, requests.RequestException, OSError):
            client = docker.DockerClient(base_url=address, timeout=5)
            try:
                if client.ping():
                    return
            finally:
                client.close()
        time.sleep(0.1)
    lines = "".join(f"\n  | {line}" for line in log)
    raise CellblockError(f"dockerd did not start{lines}", hint="run as root, with overlayfs in the kernel")
