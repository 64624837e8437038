# SPDX-License-Identifier: Apache-2.0
"""Slurm's configuration changes under a login node's commands: what they cannot read is not taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.local_cluster import LocalCluster, podman
from tests.integration.roles.controller_pod import MAIN, ControllerPod

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]

_FOLDER = "/etc/cellblock/slurm"
_FOLLOW = "/usr/lib/cellblock/follow-configuration"
_CONF = "ClusterName=c\nSlurmctldHost=nowhere\nAuthType=auth/munge\n"
_BAD = ("MaxArraySize=lots\n", "NoSuchKey=1\n")


@pytest.fixture(scope="module")
def pod(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerPod]:
    """A container of the login node's image in which the program alone runs."""
    image = podman("inspect", "--format", "{{.Image}}", container_name(cluster.request.name, "login")).strip()
    folder: Path = tmp_path_factory.mktemp("pod")
    made = ControllerPod(f"{cluster.request.name}-follows", image, folder, {"slurm.conf": _CONF})
    made.put(MAIN)
    podman(
        *("run", "--detach", "--name", made.name, "--read-only", "--read-only-tmpfs=false"),
        *("--tmpfs", "/run", "--tmpfs", "/etc/slurm:mode=755", "--volume", f"{folder}/map:{_FOLDER}:ro"),
        *("--entrypoint", "sh", image, "-c", f"{_FOLLOW} --first {_FOLDER} && exec {_FOLLOW} {_FOLDER}"),
    )
    try:
        made.wait_until("the first", lambda: made.run("test", "-e", "/etc/slurm/slurm.conf").status == 0)
        yield made
    finally:
        made.remove()


def in_use(pod: ControllerPod) -> set[str]:
    """The partitions of the file that commands read, which they can."""
    assert pod.run("scontrol", "show", "hostnames", "n-[1-2]").ok().split() == ["n-1", "n-2"]
    return set(re.findall(r"PartitionName=(\S+)", pod.run("cat", "/etc/slurm/slurm.conf").ok()))


def test_a_change_is_taken(pod: ControllerPod) -> None:
    assert in_use(pod) == {"main"}
    pod.put(MAIN + "PartitionName=second Nodes=n-1\n", {"note.conf": "of the second\n"})
    pod.wait_until("the second", lambda: in_use(pod) == {"main", "second"})
    assert pod.run("cat", "/etc/slurm/note.conf").ok() == "of the second\n"
    pod.put(MAIN)
    pod.wait_until("the first again", lambda: in_use(pod) == {"main"})
    assert pod.run("ls", "/etc/slurm").ok().split() == ["slurm.conf"]


@pytest.mark.parametrize("line", _BAD)
def test_what_commands_cannot_read_leaves_the_old_in_use(pod: ControllerPod, line: str) -> None:
    pod.put(MAIN + line)
    key = line.partition("=")[0]
    pod.wait_until("the log says why", lambda: re.search(f"do not take .*{key}", pod.said()) is not None)
    assert in_use(pod) == {"main"}
    assert pod.run(_FOLLOW, "--first", _FOLDER).status == 1, "a new pod waits"
    pod.put(MAIN + "PartitionName=later Nodes=n-2\n")
    pod.wait_until("the next", lambda: in_use(pod) == {"main", "later"})
    pod.put(MAIN)
    pod.wait_until("the first again", lambda: in_use(pod) == {"main"})
