# SPDX-License-Identifier: Apache-2.0
"""An salloc that is stopped takes no messages: slurmctld launches others' jobs meanwhile."""

from __future__ import annotations

import time

import pytest

from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]

# slurmctld sent 85 at a time, and waited for a minute (MessageTimeout) for each.
_MESSAGES = 400
_MOST_S = 30


def test_messages_to_a_stopped_salloc_keep_no_job_waiting(cluster: LocalCluster, user: str) -> None:
    """Its job is held: all this takes no resources."""
    # In a shell of its own, which does not wait for it.
    script = f"""cd
        (salloc --hold --job-name=stopped sleep 1 >/dev/null 2>&1 & echo $! >number)
        until job=$(squeue -h -n stopped -o %A) && [ -n "$job" ]; do sleep 0.2; done
        kill -STOP $(cat number)
        for i in $(seq {_MESSAGES}); do scontrol notify $job hello & [ $((i % 25)) != 0 ] || wait; done
        echo $job $(cat number)"""
    job, number = cluster.jail("bash", "-c", script, user=user).ok().split()[-2:]
    try:
        begun = time.monotonic()
        cluster.jail("srun", "-n1", "true", user=user).ok()
        cluster.jail("sh", "-c", "cd; sbatch --wait --wrap true", user=user).ok()
        assert time.monotonic() - begun < _MOST_S
    finally:
        cluster.on("controller", "scancel", job)
        cluster.jail("kill", "-KILL", number, user=user)
