# SPDX-License-Identifier: Apache-2.0
"""`up --engine docker`, a job over two workers, and `down`, by a dockerd of the test's own."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import docker
import pytest

from cellblock.bench.harness.dockerd import private_dockerd
from cellblock.errors import CellblockError
from tests.integration.cluster.typed_command import type_command
from tests.integration.conftest import default_variant
from tests.integration.state_folder import state_folder
from tests.memory_disk import memory_disk
from tests.ports import free_port

pytestmark = pytest.mark.integration

_NAME = f"bydocker{os.getpid()}"
# Seconds for one command; the first one may build all images.
_TIMEOUT_S = 600
_HOSTS = ("accounting", "controller", "database", "login", "worker-1", "worker-2")
# Seconds for a job, whose nodes are idle.
_JOB_S = 60


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[docker.DockerClient]:
    """Of a dockerd that has nothing yet, and that DOCKER_HOST names meanwhile."""
    if shutil.which("dockerd") is None:
        pytest.skip("dockerd is not installed: apt-get install docker.io runc")
    with (
        memory_disk(tmp_path / "docker", "size=4g,mode=755") as data,
        ExitStack() as stack,
        pytest.MonkeyPatch.context() as patch,
        state_folder(),
    ):
        try:
            address = stack.enter_context(private_dockerd(data))
        except CellblockError as error:
            pytest.skip(f"dockerd does not run here, so no cluster in Docker is tested: {error}")
        patch.setenv("DOCKER_HOST", address)
        client = docker.DockerClient(base_url=address)
        yield client
        # What a failed test left would outlive dockerd: containers end with their own supervisor.
        for left in client.containers.list(all=True):
            left.remove(force=True)
        client.networks.prune()
        client.close()


def typed(target: str, *arguments: str, timeout_s: int = _TIMEOUT_S) -> str:
    done = type_command(_NAME, target, *arguments, timeout_s=timeout_s)
    assert done.returncode == 0, f"{target}: {done.stdout}{done.stderr}"
    return done.stdout


def test_a_cluster_runs_in_docker_and_leaves_nothing(daemon: docker.DockerClient) -> None:
    started = typed(
        *("up", "--engine", "docker", "--ssh-port", str(free_port()), "--variant", default_variant())
    )
    assert "Next:" in started
    names = {container.name for container in daemon.containers.list()}
    assert names == {f"cellblock-{_NAME}-{host}" for host in _HOSTS}
    job = typed("shell", "--user", "cellblock", "srun", "-N2", "hostname", timeout_s=_JOB_S)
    assert sorted(job.split()) == ["worker-1", "worker-2"]
    assert re.search(r"^ +node +worker-2 +idle$", typed("status"), re.MULTILINE)
    assert typed("down", "--purge") == f"cluster {_NAME} is stopped; its jail is deleted\n"
    assert daemon.containers.list(all=True) == []
    assert [one.name for one in daemon.networks.list() if one.name not in ("host", "none")] == []
