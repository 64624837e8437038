# SPDX-License-Identifier: Apache-2.0
"""Runs a real registry for tests: Debian's docker-registry, on a free port of loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ports import free_port

USER, PASSWORD = "ada", "sesame"
# bcrypt of PASSWORD: the one kind of htpasswd entry that docker's registry reads.
_HTPASSWD = f"{USER}:$2y$05$abcdefghijklmnopqrstuuKcS.CYWVYVaLiiCKrrc0A5s3mGesJ9O\n"
_START_S = 60


@dataclass(frozen=True)
class RunningRegistry:
    """A registry at `host`, whose storage is below `storage`."""

    host: str
    storage: Path
    log: Path

    def blob(self, digest: str) -> Path:
        """The file that holds a blob."""
        name = digest.removeprefix("sha256:")
        return self.storage / "docker/registry/v2/blobs/sha256" / name[:2] / name / "data"


@contextmanager
def running_registry(
    folder: Path,
    *,
    password: bool = False,
    read_only: bool = False,
    storage: Path | None = None,
    certificate: tuple[Path, Path] | None = None,
    auth: Mapping[str, Any] | None = None,
    address: str = "127.0.0.1",
    port: int | None = None,
) -> Iterator[RunningRegistry]:
    """A registry that ends with the block; `folder` takes its configuration, log and (by default) storage.

    With `password` it wants basic authentication as USER; with `certificate` (and key) it speaks TLS;
    `auth` is that part of its configuration; `address` is one of this machine's, for a cluster;
    `port` is a given one.
    """
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed: `python3 build.py test` installs it")
    storage = storage or folder / "storage"
    folder.mkdir(parents=True, exist_ok=True)
    host = f"{address}:{port or free_port()}"
    configuration: dict[str, Any] = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(storage)},
            "delete": {"enabled": True},
            "maintenance": {"readonly": {"enabled": read_only}, "uploadpurging": {"enabled": False}},
        },
        "http": {"addr": host},
        # Manifests may say of a layer that it is elsewhere.
        "validation": {"manifests": {"urls": {"allow": ["."]}}},
    }
    if password:
        (folder / "htpasswd").write_text(_HTPASSWD)
        configuration["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    if auth:
        configuration["auth"] = dict(auth)
    if certificate:
        configuration["http"]["tls"] = dict(zip(("certificate", "key"), map(str, certificate), strict=True))
    (folder / "config.yml").write_text(yaml.safe_dump(configuration))
    log = folder / "log"
    with log.open("wb") as out:
        argv = [program, "serve", str(folder / "config.yml")]
        process = subprocess.Popen(argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        _wait(host, process, log)
        yield RunningRegistry(host, storage, log)
    finally:
        process.terminate()
        process.wait()


def repository_of(request: pytest.FixtureRequest) -> str:
    """The path of a repository that is the running test's own."""
    words = "".join(c if c.isalnum() else " " for c in request.node.name.lower()).split()
    return f"tests/{'-'.join(words)}"


def get(url: str, headers: Mapping[str, str] | None = None) -> bytes:
    """What a registry serves to anybody's client: no code of ours in between."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=dict(headers or {})), timeout=60) as answer:
        return bytes(answer.read())


def _wait(host: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    address, _, port = host.rpartition(":")
    while True:
        try:
            socket.create_connection((address.strip("[]"), int(port))).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the registry does not start:\n{log.read_text()}")
            time.sleep(0.02)
