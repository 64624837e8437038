# SPDX-License-Identifier: Apache-2.0
"""`up`, `shell` and `down` as typed: of one worker, that fails, of a command with options."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock.cluster import stop
from cellblock.cluster.engine.container_specs import container_name
from cellblock.events import Events
from tests.integration.cluster.test_cluster_lifecycle import podman
from tests.integration.cluster.typed_command import type_command
from tests.integration.conftest import default_variant
from tests.integration.state_folder import state_folder
from tests.ports import free_port

pytestmark = pytest.mark.integration

_NAME = f"typed{os.getpid()}"
# Seconds for one command; the first one may build all images.
_TIMEOUT_S = 1500

Type = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kept() -> Iterator[Path]:
    """The folder of the cluster that the test names, which goes in the end."""
    if os.geteuid() != 0:
        pytest.skip("a cluster needs root")
    with state_folder() as folder:
        try:
            yield folder / "clusters" / _NAME
        finally:
            stop(_NAME, Events())


def typed(target: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return type_command(_NAME, target, *arguments, timeout_s=_TIMEOUT_S)


def up() -> subprocess.CompletedProcess[str]:
    return typed("up", "--workers", "1", "--ssh-port", str(free_port()), "--variant", default_variant())


def test_an_up_that_fails_leaves_no_volume(kept: Path, tmp_path: Path) -> None:
    # Nothing of this cluster has the name, so `up` does not remove it.
    taken = container_name(_NAME, "login")
    podman("create", "--name", taken, "--rootfs", str(tmp_path), "true")
    try:
        done = up()
    finally:
        podman("rm", taken)
    assert done.returncode == 1, done.stderr
    assert f"cluster {_NAME} could not be started" in done.stderr
    assert not kept.exists()


def test_a_cluster_of_one_worker_is_told_of_as_such_and_runs_commands_with_options(kept: Path) -> None:
    done = up()
    assert done.returncode == 0, done.stderr
    assert "  srun hostname  " in done.stdout
    assert "-N2" not in done.stdout
    assert f"python3 build.py shell --admin --name {_NAME}" in done.stdout
    job = typed("shell", "--user", "cellblock", "srun", "-N1", "--quiet", "hostname")
    assert (job.returncode, job.stdout) == (0, "worker-1\n"), job.stderr
    separated = typed("shell", "--admin", "--", "sinfo", "-h", "-o", "%D")
    assert (separated.returncode, separated.stdout) == (0, "1\n"), separated.stderr
    podman("stop", container_name(_NAME, "worker-1"))
    status = typed("status")
    assert status.returncode == 1
    assert f"`python3 build.py up --name {_NAME} --variant {default_variant()} --workers 1 " in status.stdout
    assert typed("down").stdout == f"cluster {_NAME} is stopped; its jail is kept\n"
    assert typed("down", "--purge").stdout == f"cluster {_NAME} did not run; its jail is deleted\n"
    assert not kept.exists()
    assert typed("down").returncode == 1
