# SPDX-License-Identifier: Apache-2.0
"""Makes sure after each test of faults that the worker takes jobs again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.faults.attempt import resume
from tests.integration.faults.node import (
    HOLDER,
    WORKER,
)
from tests.integration.local_cluster import LocalCluster


@pytest.fixture(autouse=True)
def serves_again(cluster: LocalCluster, user: str) -> Iterator[None]:
    """After each test, with the fault repaired, the worker takes jobs, at most after state=resume."""
    yield
    resume(cluster)
    cluster.wait_until("no job", lambda: not cluster.on("controller", "squeue", "-h").ok())
    assert cluster.jail("srun", "-w", WORKER, "cat", "/etc/cellblock/jail-release", user=user).ok()
    cluster.wait_until("its jobs left nothing", lambda: not cluster.on(WORKER, "ls", HOLDER).ok())
