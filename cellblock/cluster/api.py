# SPDX-License-Identifier: Apache-2.0
"""Finds the Docker API: podman's, started for the purpose, or Docker's.

podman shares buildah's storage, so that images need no copy. Its service is Cellblock's own: a
socket below /run/cellblock, a containers.conf that fits this machine, and an end after a minute
without a request. A service that the system runs may be set up for a runtime that fails here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import DockerException

from cellblock.cluster import host
from cellblock.cluster.model import EngineName
from cellblock.errors import CellblockError

# Seconds without a request after which podman's service ends by itself.
_IDLE_S = 60
# Seconds for it to answer for the first time: it reads its whole storage when it starts.
_START_S = 20.0
# Seconds for one request: removing containers waits for their processes.
_TIMEOUT_S = 120

_RUN = Path("/run/cellblock")


@contextmanager
def connect(engine: EngineName) -> Iterator[docker.DockerClient]:
    """A client of `engine`'s API; closed at the end.

    Raises CellblockError when there is none and none can be started.
    """
    client = _podman() if engine == "podman" else _docker()
    try:
        yield client
    finally:
        client.close()


def _service() -> Path:
    """The folder of podman's service for processes with this one's limits.

    A service without CAP_SYS_RESOURCE gives containers no higher limits than its own, and the process that
    started it may have had lower ones than this one.
    """
    limits = "-".join(str(limit.value) for limit in host.container_limits())
    return _RUN / f"podman-{limits}"


def podman_environment() -> dict[str, str]:
    """Variables that make the podman command use the same settings as Cellblock's service."""
    return {"CONTAINERS_CONF": str(_service() / "containers.conf")}


def containers_conf(limits: tuple[host.Limit, ...], *, runc: bool, systemd: bool) -> str:
    """The text of containers.conf(5) for this machine."""
    ulimits = ", ".join(f'"{limit.name}={limit.value}:{limit.value}"' for limit in limits)
    lines = [
        "# Written by Cellblock for its own podman service.",
        "[containers]",
        "# podman's defaults are above what a process without CAP_SYS_RESOURCE may set.",
        f"default_ulimits = [{ulimits}]",
        "[engine]",
        "# The journal may not exist here.",
        'events_logger = "file"',
    ]
    if runc:
        lines += ["# crun refuses hosts that mount both cgroup hierarchies.", 'runtime = "runc"']
    if not systemd:
        lines += ["# Without systemd there is nobody to make scopes.", 'cgroup_manager = "cgroupfs"']
    return "\n".join(lines) + "\n"


def _podman() -> docker.DockerClient:
    socket = _service() / "podman.sock"
    client = _answering(f"unix://{socket}")
    return client or _start_podman(socket)


def _start_podman(socket: Path) -> docker.DockerClient:
    podman = shutil.which("podman")
    if podman is None:
        raise CellblockError(
            "no Docker API: podman is not installed",
            hint="apt-get install podman runc, or use --engine docker where Docker runs",
        )
    try:
        _RUN.mkdir(mode=0o700, parents=True, exist_ok=True)
        socket.parent.mkdir(mode=0o700, exist_ok=True)
        (socket.parent / "containers.conf").write_text(
            containers_conf(
                host.container_limits(),
                runc=shutil.which("runc") is not None,
                systemd=Path("/run/systemd/system").is_dir(),
            ),
            encoding="utf-8",
        )
        log = (socket.parent / "podman.log").open("w", encoding="utf-8")
    except OSError as error:
        raise CellblockError(
            f"no Docker API: {error.filename}: {error.strerror}", hint="run as root"
        ) from error
    socket.unlink(missing_ok=True)
    with log:
        service = subprocess.Popen(
            [podman, "system", "service", "--time", str(_IDLE_S), f"unix://{socket}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **podman_environment()},
            # It serves later commands too: Ctrl-C here is not meant for it.
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and service.poll() is None:
        client = _answering(f"unix://{socket}")
        if client:
            return client
        time.sleep(0.02)
    if service.poll() is None:
        service.terminate()
    tail = (socket.parent / "podman.log").read_text(encoding="utf-8", errors="replace").strip()[-2000:]
    raise CellblockError(
        f"no Docker API: podman's service did not start: {tail or 'no answer'}",
        hint="try `podman info`; `build.py doctor` checks this machine",
    )


def _docker() -> docker.DockerClient:
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    client = _answering(address)
    if client is None:
        raise CellblockError(
            f"no Docker API: nothing answers at {address}",
            hint="start Docker (systemctl start docker), or use podman: --engine podman",
        )
    return client


def _answering(address: str) -> docker.DockerClient | None:
    if address.startswith("unix://") and not Path(address.removeprefix("unix://")).exists():
        return None
    client = None
    try:
        # The constructor asks for the server's version, so it fails as ping does.
        client = docker.DockerClient(base_url=address, timeout=_TIMEOUT_S)
        client.ping()
    except (DockerException, OSError):  # requests' errors are OSErrors
        if client:
            client.close()
        return None
    return client
