# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a node, its plan or its volume: no program runs outside the jail, one line names the
cause where the user and the administrator look, and the node is drained for its own faults alone."""

from __future__ import annotations

import re

import pytest

from tests.integration.faults.attempt import attempt, check, node, resume
from tests.integration.faults.node import JAIL_FAULTS, NODE_FAULTS, WORKER
from tests.integration.jobs import ended, home, submit
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]


@pytest.mark.parametrize("name", NODE_FAULTS)
def test_a_fault_of_the_node_drains_it_with_the_cause_as_reason(
    cluster: LocalCluster, user: str, name: str
) -> None:
    fault, pattern = NODE_FAULTS[name]
    with fault(cluster):
        found = attempt(cluster, user)
        check(cluster, found, pattern)
    assert found.drained
    assert found.reason in found.causes[0]


@pytest.mark.parametrize("name", JAIL_FAULTS)
def test_what_users_can_do_to_the_jail_drains_no_node(cluster: LocalCluster, user: str, name: str) -> None:
    fault, pattern = JAIL_FAULTS[name]
    with fault(cluster):
        found = attempt(cluster, user)
        check(cluster, found, pattern)
    assert not found.drained


def test_a_batch_job_finds_the_cause_in_its_error_file(cluster: LocalCluster, user: str) -> None:
    fault, pattern = NODE_FAULTS["a source that is missing"]
    with fault(cluster):
        found = attempt(cluster, user, batch=True)
        check(cluster, found, pattern)
    assert found.drained
    assert found.reason in found.causes[0]


def test_a_batch_job_fails_without_draining_for_a_fault_in_the_jail(cluster: LocalCluster, user: str) -> None:
    fault, pattern = JAIL_FAULTS["a target of another kind"]
    with fault(cluster):
        found = attempt(cluster, user, batch=True)
        check(cluster, found, pattern)
    assert not found.drained


def test_a_batch_job_on_a_node_without_the_jail_drains_it_and_does_not_run(
    cluster: LocalCluster, user: str
) -> None:
    """Its error file is on the volume that is missing: the log alone has the cause."""
    fault, pattern = NODE_FAULTS["no jail"]
    with fault(cluster):
        found = attempt(cluster, user, batch=True)
    assert not found.ran
    assert found.status != 0
    assert found.drained
    assert re.search(pattern, found.reason)


@pytest.mark.parametrize("name", ["no jail", "a stale volume", "a source that is missing"])
def test_a_batch_job_that_met_a_faulty_node_runs_once_there_is_one_without_faults(
    cluster: LocalCluster, user: str, name: str
) -> None:
    if cluster.status.release == "22.05":
        pytest.skip("Slurm 22.05 requeues no job whose slurmstepd gives up: it fails")
    fault, pattern = NODE_FAULTS[name]
    ran = home(cluster, user) / "ran"
    ran.unlink(missing_ok=True)
    with fault(cluster):
        cluster.on(WORKER, "sh", "-c", "> /var/log/slurm/slurmd.log").ok()
        job = submit(cluster, user, f"touch /home/{user}/ran", "-w", WORKER, "-o", f"/home/{user}/said")
        cluster.wait_until("it is requeued", lambda: cluster.job(job)["Restarts"] == "1")
        drained, reason = node(cluster)
        log = cluster.on(WORKER, "cat", "/var/log/slurm/slurmd.log").ok()
    assert drained
    assert re.search(pattern.replace("LAST", r"\d+"), reason)
    assert not ran.exists()
    # Slurm's word for whose fault it is, since 25.05; only where nothing can be told to the user.
    blamed = cluster.status.release == "26.05" and name != "a source that is missing"
    assert ("Spank plugin failure, node failed" in log) == blamed, log
    resume(cluster)
    # Instead of two minutes; but for a second or two slurmd takes it for the job that it was told to end.
    cluster.jail("scontrol", "update", f"JobId={job}", "StartTime=now+4", user=user).ok()
    # Of a job that is queued again, NODE_FAIL is told for a moment: it is not over.
    cluster.wait_until("the job runs where there is no fault", ran.exists)
    ended(cluster, job)
