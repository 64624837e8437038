# SPDX-License-Identifier: Apache-2.0
"""Connects to the Docker API: of Docker, or of podman, which is started for the purpose.

podman shares buildah's storage, so that images need no copy. Its service is Cellblock's own: a
socket below /run/cellblock, a containers.conf that fits this machine, and an end after a minute
without a request. A service that the system runs may be set up for a runtime that fails here.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
from docker.errors import DockerException

from cellblock.cluster.definition.model import EngineName
from cellblock.cluster.facts import host
from cellblock.engine import docker as docker_engine
from cellblock.errors import CellblockError
from cellblock.files import durable, flock
from cellblock.privilege import require_root

# Seconds without a request after which podman's service ends by itself.
_IDLE_S = 60
# Seconds for it to answer for the first time: it reads its whole storage when it starts, on a
# machine that may be busy.
_START_S = 60.0
# Seconds for one request: removing containers waits for their processes.
_TIMEOUT_S = 120

# Any that the client knows: a ping's path has none.
_PING_VERSION = "1.41"

_RUN = Path("/run/cellblock")
# A symbolic link to the socket of the service that was started last.
_CURRENT = "podman.sock"


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
        "# Seconds that podman keeps a process for each command that has ended in a container; else 300.",
        "exit_command_delay = 60",
    ]
    if runc:
        lines += ["# crun refuses hosts that mount both cgroup hierarchies.", 'runtime = "runc"']
    if not systemd:
        lines += ["# Without systemd there is nobody to make scopes.", 'cgroup_manager = "cgroupfs"']
    return "\n".join(lines) + "\n"


def _podman() -> docker.DockerClient:
    require_root("clusters are containers of root's podman")
    folder = _service()
    current = f"unix://{folder / _CURRENT}"
    client = _answering(current)
    if client:
        return client
    try:
        _RUN.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CellblockError(
            f"no Docker API: {error.filename}: {error.strerror}", hint="make room there (`df -h`)"
        ) from error
    with flock.locked(folder / "lock"):
        # Somebody else may have started one meanwhile.
        return _answering(current) or _start_podman(folder)


def _start_podman(folder: Path) -> docker.DockerClient:
    podman = shutil.which("podman")
    if podman is None:
        raise CellblockError(
            "no Docker API: podman is not installed",
            hint="apt-get install podman runc, or use --engine docker where Docker runs",
        )
    try:
        for old in folder.glob("podman-*.sock"):
            if not _listens(old):
                old.unlink(missing_ok=True)
        # By rename: others' podman commands read it at any time.
        durable.write(
            folder / "containers.conf",
            containers_conf(
                host.container_limits(),
                runc=shutil.which("runc") is not None,
                systemd=Path("/run/systemd/system").is_dir(),
            ),
        )
        log = (folder / "podman.log").open("w", encoding="utf-8")
    except OSError as error:
        raise CellblockError(
            f"no Docker API: {error.filename}: {error.strerror}", hint="make room there (`df -h`)"
        ) from error
    # Of its own: a service that ends removes the file of its socket, whoever listens there by then.
    address = folder / f"podman-{secrets.token_hex(4)}.sock"
    with log:
        service = subprocess.Popen(
            [podman, "system", "service", "--time", str(_IDLE_S), f"unix://{address}"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **podman_environment()},
            # It serves later commands too: Ctrl-C here is not meant for it.
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and service.poll() is None:
        client = _answering(f"unix://{address}")
        if client:
            _name_current(folder, address)
            return client
        time.sleep(0.02)
    if service.poll() is None:
        service.terminate()
    tail = (folder / "podman.log").read_text(encoding="utf-8", errors="replace").strip()[-2000:]
    raise CellblockError(
        f"no Docker API: podman's service did not start: {tail or 'no answer'}",
        hint="try `podman info`; `build.py doctor` checks this machine",
    )


def _docker() -> docker.DockerClient:
    address = docker_engine.address()
    client = _answering(address)
    if client is None:
        raise CellblockError(
            f"no Docker API: nothing answers at {address}",
            hint=f"{docker_engine.how_to_start()}, or use podman: --engine podman",
        )
    return client


def _name_current(folder: Path, address: Path) -> None:
    """Have the link to the newest service's socket lead to `address`; there is a link at any time."""
    new = folder / f"{_CURRENT}.new"
    new.unlink(missing_ok=True)
    new.symlink_to(address.name)
    new.replace(folder / _CURRENT)


def _listens(path: Path) -> bool:
    """Whether a process listens on the Unix socket at `path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _answering(address: str) -> docker.DockerClient | None:
    if address.startswith("unix://") and not Path(address.removeprefix("unix://")).exists():
        return None
    try:
        return docker.DockerClient(base_url=address, version=_version(address), timeout=_TIMEOUT_S)
    except (DockerException, OSError):  # requests' errors are OSErrors
        return None


def _version(address: str) -> str:
    """The version of the API at `address`, as a ping's answer names it.

    The client itself would ask for /version: podman looks for the packages of its programs then, which
    takes six processes and half a second.
    """
    client = docker.APIClient(base_url=address, version=_PING_VERSION, timeout=_TIMEOUT_S)
    try:
        answer = client.get(f"{client.base_url}/_ping", timeout=_TIMEOUT_S)
        answer.raise_for_status()
        return answer.headers["Api-Version"]
    except KeyError:
        raise DockerException(f"{address}: the answer to a ping names no version") from None
    finally:
        client.close()
