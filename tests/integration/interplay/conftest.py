# SPDX-License-Identifier: Apache-2.0
"""Submits jobs that need a minute of Slurm's own time before the first test begins."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.integration.jobs import submit
from tests.integration.local_cluster import KEPT, LocalCluster


@dataclass(frozen=True)
class SlowJobs:
    """Jobs that take a minute of Slurm's own time, submitted before the first test."""

    limited: str
    het: str


@pytest.fixture(scope="session", autouse=True)
def slow_jobs(cluster: LocalCluster, user: str) -> SlowJobs:
    # Slurm looks at time limits twice a minute, and starts heterogeneous jobs as often; in a partition of
    # its own, for such a job holds up those that come after it.
    # PriorityTier=0: it is not to hold up those of the other partition, either.
    partition = ("PartitionName=slow", "Nodes=worker-1,worker-2", "PriorityTier=0", "PreemptMode=off")
    cluster.on("controller", "scontrol", "create", *partition).ok()
    limited = submit_limited(cluster, user)
    second = f"#SBATCH -n1 -w worker-2 -p slow --comment={KEPT}"
    script = f"#!/bin/bash\n#SBATCH -n1 -w worker-1\n#SBATCH hetjob\n{second}\n"
    steps = "srun --het-group=0,1 -l hostname | sort; srun --het-group=1 cat /etc/cellblock/jail-release"
    options = (f"--comment={KEPT}", "-p", "slow", "-o", "het.out")
    het = submit(cluster, user, script + steps, *options)
    return SlowJobs(limited, het)


def submit_limited(cluster: LocalCluster, user: str) -> str:
    """A job that is to get a signal within its only minute; it writes limited.out."""
    script = "trap 'echo the signal came' USR1; while :; do sleep 1; done"
    options = ("-w", "worker-1", "-t", "1", "--signal=B:USR1@60", "-o", "limited.out")
    return submit(cluster, user, script, f"--comment={KEPT}", *options)
