# SPDX-License-Identifier: Apache-2.0
"""Mistakes of a user: they drain no node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.faults.attempt import attempt
from tests.integration.faults.node import (
    WORKER,
    mounted,
)
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]


@contextmanager
def full_home(cluster: LocalCluster, user: str) -> Iterator[None]:
    owner = (cluster.root / "home" / user).stat()
    options = f"nr_inodes=1,mode=755,uid={owner.st_uid},gid={owner.st_gid}"
    with mounted(cluster, f"/mnt/jail/root/home/{user}", options):
        yield


def test_an_output_path_that_does_not_exist_drains_no_node(cluster: LocalCluster, user: str) -> None:
    found = attempt(cluster, user, batch=True, options=("-o", "/home/nobody/there/x"))
    assert (found.ran, found.status != 0, found.drained) == (False, True, False), found


def test_a_full_home_drains_no_node(cluster: LocalCluster, user: str) -> None:
    with full_home(cluster, user):
        found = attempt(cluster, user, batch=True)
    assert (found.ran, found.status != 0, found.drained) == (False, True, False), found


def test_a_directory_as_input_drains_no_node(cluster: LocalCluster, user: str) -> None:
    found = attempt(cluster, user, batch=True, options=("-i", f"/home/{user}"))
    assert (found.ran, found.status != 0, found.drained) == (False, True, False), found
    assert len(found.causes) == 1
    assert "standard input of the job is a directory" in found.causes[0]


def test_an_environment_cannot_misname_the_node(cluster: LocalCluster, user: str) -> None:
    command = ("srun", "-w", WORKER, "sh", "-c", "echo $SLURMD_NODENAME")
    assert cluster.jail("env", "SLURMD_NODENAME=../x", *command, user=user).ok() == f"{WORKER}\n"
