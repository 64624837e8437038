# SPDX-License-Identifier: Apache-2.0
"""Jobs that end early or run twice; the last of this folder, for its slow jobs take a minute."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cellblock.cluster.facts import host
from tests.integration.interplay.conftest import SlowJobs, submit_limited
from tests.integration.jobs import fresh_path, output, srun, submit
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]


TWICE = """
run=${SLURM_RESTART_COUNT:-0}
seen="$(ls /tmp | grep -c mark) $(ls -d /mnt/jail/root 2>/dev/null)"
echo "$SLURM_JOB_ID $run $seen" >> "twice.$SLURM_JOB_ID"
touch /tmp/mark
[ "$run" = 1 ] || sleep 600
"""


def test_a_requeued_job_runs_again_in_a_fresh_jail(cluster: LocalCluster, user: str) -> None:
    options = ("--requeue", "-w", "worker-2", "-o", "/dev/null")
    job = submit(cluster, user, TWICE, *options)
    cluster.wait_until("the first run", lambda: bool(output(cluster, user, f"twice.{job}")))
    cluster.jail("scontrol", "requeue", job, user=user).ok()
    assert second_run(cluster, user, job) == [f"{job} 0 0", f"{job} 1 0"]


def second_run(cluster: LocalCluster, user: str, job: str) -> list[str]:
    """Have a requeued job start now; what its runs wrote."""
    cluster.wait_until("it is pending", lambda: cluster.job(job)["JobState"] == "PENDING")
    # Slurm waits two minutes before the second run, for slurmd takes times in seconds: a run that starts
    # in the second in which the first was killed is killed, too.
    time.sleep(2)
    cluster.jail("scontrol", "update", f"JobId={job}", "StartTime=now", user=user).ok()
    going_on = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
    cluster.wait_until("it is over", lambda: cluster.job(job)["JobState"] not in going_on)
    assert cluster.job(job)["JobState"] == "COMPLETED"
    return [line.strip() for line in output(cluster, user, f"twice.{job}").splitlines()]


@pytest.fixture
def urgent(cluster: LocalCluster) -> Iterator[str]:
    """A partition whose jobs displace those of the other."""
    options = ("PartitionName=urgent", "Nodes=worker-1,worker-2", "PriorityTier=10", "State=UP")
    cluster.on("controller", "scontrol", "create", *options).ok()
    yield "urgent"
    cluster.on("controller", "scontrol", "delete", "PartitionName=urgent").ok()


def test_a_preempted_job_runs_again_in_a_fresh_jail(cluster: LocalCluster, user: str, urgent: str) -> None:
    options = ("--requeue", "--exclusive", "-w", "worker-2", "-o", "/dev/null")
    job = submit(cluster, user, TWICE, *options)
    cluster.wait_until("the first run", lambda: bool(output(cluster, user, f"twice.{job}")))
    whole_node = ("-p", urgent, "-w", "worker-2", "--exclusive")
    assert srun(cluster, user, *whole_node, "sh", "-c", "ls /tmp | grep -c mark").out == "0\n"
    assert second_run(cluster, user, job) == [f"{job} 0 0", f"{job} 1 0"]


def test_one_element_of_an_array_is_cancelled(cluster: LocalCluster, user: str) -> None:
    go = fresh_path(cluster, user, "element-go")
    script = f"echo begun; until [ -e /home/{user}/{go.name} ]; do sleep 0.1; done; echo done"
    job = submit(cluster, user, script, "--array=1-2", "--output=cancel.%A.%a", "-w", "worker-2")

    def state(element: int) -> str:
        return cluster.jail("squeue", "-h", "-j", f"{job}_{element}", "-o%T").out.strip()

    # Slurm calls a job running before its script is.
    cluster.wait_until(
        "both run", lambda: all(output(cluster, user, f"cancel.{job}.{one}") == "begun\n" for one in (1, 2))
    )
    cluster.jail("scancel", f"{job}_1", user=user).ok()
    cluster.wait_until("the first is over", lambda: state(1) == "")
    assert state(2) == "RUNNING"
    go.touch()
    cluster.wait_until("the second is over", lambda: state(2) == "")
    assert "CANCELLED" in output(cluster, user, f"cancel.{job}.1")
    assert output(cluster, user, f"cancel.{job}.2") == "begun\ndone\n"


def test_limits_are_those_that_the_worker_was_given(cluster: LocalCluster, user: str) -> None:
    """PropagateResourceLimits=NONE: not those of the shell that submitted."""
    limits = {limit.name: limit.value for limit in host.container_limits()}
    memlock = limits["memlock"]
    expected = [str(limits["nofile"]), "unlimited" if memlock == -1 else str(memlock // 1024)]
    script = "ulimit -n 256; ulimit -l 0; srun bash -c 'ulimit -n; ulimit -l'"
    assert cluster.jail("bash", "-c", script, user=user).ok().split() == expected


def test_a_heterogeneous_job_runs_its_steps_in_the_jail(
    cluster: LocalCluster, user: str, slow_jobs: SlowJobs
) -> None:
    cluster.wait_until("it is over", lambda: "SLURM_RELEASE" in output(cluster, user, "het.out"))
    assert output(cluster, user, "het.out").splitlines()[:2] == ["0: worker-1", "1: worker-2"]


def test_a_job_gets_its_signal_and_ends_at_its_limit(
    cluster: LocalCluster, user: str, slow_jobs: SlowJobs
) -> None:
    def ended(job: str) -> str:
        cluster.wait_until("its end", lambda: cluster.job(job)["JobState"] == "TIMEOUT")
        return output(cluster, user, "limited.out")

    # A minute and a half after its start at the latest, and much of that has passed.
    text = ended(slow_jobs.limited)
    if "the signal came" not in text:
        # slurmctld sends it once, twice a minute: to a job whose script is not there yet, it is lost.
        text = ended(submit_limited(cluster, user))
    assert text.startswith("the signal came\n")
    assert "DUE TO TIME LIMIT" in text
    processes = cluster.processes
    cluster.wait_until(
        "nothing of it runs", lambda: not any(command == "sleep 1" for _, command in processes("worker-1"))
    )
