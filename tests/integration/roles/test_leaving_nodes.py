# SPDX-License-Identifier: Apache-2.0
"""A node leaves before its container ends: drained, its jobs over, its record gone; and is back."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.jobs import submit
from tests.integration.local_cluster import LocalCluster, podman, restart_container

pytestmark = pytest.mark.integration

NODE = "worker-1"
LEAVE = "/usr/lib/cellblock/node-leave"
OURS = "[cellblock:leave] its pod ends"
REGISTERED = "/run/cellblock/registered"
# Slurm's own waits are shorter than a site's.
FILE = """\
node_sets: [{name: worker, count: 2}]
slurm:
  extra:
    slurm.conf: |
      SchedulerParameters=nohold_on_prolog_fail,batch_sched_delay=0,bf_interval=3,sched_interval=5
      KillWait=5
"""
HERE = ("-n1", "--mem=1", "--chdir=/", "--output=/dev/null", "-w", NODE)


@pytest.fixture(scope="module", params=[default_variant(), *other_variants()])
def nodes(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with running_cluster("leaving", request.param, text=FILE) as running:
        running.add_user("ada")
        yield running


@pytest.fixture(autouse=True)
def as_before(nodes: LocalCluster) -> Iterator[None]:
    yield
    nodes.cancel_jobs()
    come_back(nodes)
    nodes.on("controller", "scontrol", "update", f"nodename={NODE}", "state=resume")
    nodes.wait_until("no job is left", lambda: not nodes.on("controller", "squeue", "-ha").ok())
    nodes.wait_until("it is idle", lambda: state(nodes) == "idle")


def come_back(nodes: LocalCluster) -> None:
    """As a pod of the same name does."""
    restart_container(container_name(nodes.request.name, NODE))
    nodes.wait_until("it has registered", lambda: nodes.on(NODE, "test", "-e", REGISTERED).status == 0)


def state(nodes: LocalCluster) -> str:
    """The node's, without what stands for more; nothing when slurmctld has no such node."""
    return nodes.on("controller", "sinfo", "-hN", "-n", NODE, "-o", "%T").ok().strip()


def reason(nodes: LocalCluster) -> str:
    shown = nodes.on("controller", "scontrol", "show", "node", NODE).out
    found = re.search(r"Reason=(.*) \[", shown)
    return found[1] if found else ""


def runs(nodes: LocalCluster, script: str, *options: str) -> str:
    """A job that runs on the node."""
    job = submit(nodes, "ada", script, *HERE, *options)
    nodes.wait_until("it runs", lambda: nodes.job(job)["JobState"] == "RUNNING")
    return job


def test_a_node_without_jobs_is_forgotten(nodes: LocalCluster) -> None:
    nodes.on(NODE, LEAVE, "60").ok()
    assert state(nodes) == ""
    come_back(nodes)
    assert state(nodes) == "idle"


def test_its_jobs_end_before_it_goes(nodes: LocalCluster) -> None:
    job = runs(nodes, "sleep 5")
    nodes.on(NODE, LEAVE, "60").ok()
    assert nodes.job(job)["JobState"] == "COMPLETED"
    assert state(nodes) == ""


def test_a_suspended_job_is_waited_for(nodes: LocalCluster) -> None:
    job = runs(nodes, "sleep 3")
    nodes.on("controller", "scontrol", "suspend", job).ok()
    said = nodes.on(NODE, LEAVE, "4").ok() + nodes.on("controller", "scontrol", "show", "job", job).ok()
    assert "JobState=PENDING" in said


def test_jobs_without_end_are_queued_again(nodes: LocalCluster) -> None:
    again, once = runs(nodes, "sleep 900"), runs(nodes, "sleep 900", "--no-requeue")
    left = nodes.on(NODE, LEAVE, "3")
    assert left.status == 0
    assert f"job {once} cannot be queued again" in left.err
    assert nodes.job(once)["JobState"] == "NODE_FAIL"
    assert (nodes.job(again)["JobState"], nodes.job(again)["Restarts"]) == ("PENDING", "1")
    # It asks for this node by name, and gets it.
    assert reason(nodes) == OURS
    come_back(nodes)
    nodes.on("controller", "scontrol", "update", f"jobid={again}", "starttime=now")
    nodes.wait_until("it runs again", lambda: nodes.job(again)["JobState"] == "RUNNING")


def test_a_job_seconds_old_whose_container_is_killed_is_queued_again_soon(nodes: LocalCluster) -> None:
    """slurmctld takes it for one that is still being launched, and does not look for it itself"""
    job = runs(nodes, "sleep 900")
    podman("kill", "--signal=KILL", container_name(nodes.request.name, NODE))
    come_back(nodes)
    kept = runs(nodes, "sleep 900")
    # It was 112 s and more.
    nodes.wait_until("it is queued again", lambda: nodes.job(job)["Restarts"] == "1", 100)
    assert (nodes.job(kept)["JobState"], nodes.job(kept)["Restarts"]) == ("RUNNING", "0")


def test_a_job_over_two_nodes_is_queued_again(nodes: LocalCluster) -> None:
    job = submit(nodes, "ada", "srun sleep 900", "-N2", "--mem=1", "--chdir=/", "--output=/dev/null")
    nodes.wait_until("it runs", lambda: nodes.job(job)["JobState"] == "RUNNING")
    nodes.on(NODE, LEAVE, "2").ok()
    assert state(nodes) == ""
    # The other node may still be ending its part.
    nodes.wait_until("it is queued again", lambda: nodes.job(job)["JobState"] == "PENDING")


def test_a_waiting_job_keeps_its_nodes_record(nodes: LocalCluster) -> None:
    job = submit(
        nodes,
        "ada",
        "true",
        "--hold",
        "--mem=1",
        "--chdir=/",
        "--output=/dev/null",
        "-N2",
        "-w",
        "worker-[1-2]",
    )
    nodes.on(NODE, LEAVE, "9").ok()
    assert reason(nodes) == OURS
    come_back(nodes)
    nodes.on("controller", "scontrol", "release", job).ok()
    nodes.wait_until("it ends", lambda: nodes.job(job)["JobState"] == "COMPLETED")


def test_an_administrators_drain_stays(nodes: LocalCluster) -> None:
    nodes.on(
        "controller", "scontrol", "update", f"nodename={NODE}", "state=drain", "reason=bad fan, State=IDLE"
    ).ok()
    nodes.on(NODE, LEAVE, "9").ok()
    assert (state(nodes), reason(nodes)) == ("drained", "bad fan, State=IDLE")
    come_back(nodes)
    assert (state(nodes), reason(nodes)) == ("drained", "bad fan, State=IDLE")


def test_killed_half_way_it_can_be_run_again(nodes: LocalCluster) -> None:
    job = runs(nodes, "sleep 8")
    half = f"{LEAVE} 60 & sleep 2; kill -KILL $!"
    nodes.on(NODE, "sh", "-c", half)
    assert (state(nodes), reason(nodes)) == ("draining", OURS)
    nodes.on(NODE, LEAVE, "60").ok()
    assert nodes.job(job)["JobState"] == "COMPLETED"
    assert state(nodes) == ""


def test_killed_half_way_its_node_serves_again(nodes: LocalCluster) -> None:
    runs(nodes, "sleep 900")
    nodes.on(NODE, "sh", "-c", f"{LEAVE} 60 & sleep 2; kill -KILL $!")
    come_back(nodes)
    nodes.wait_until("it takes jobs", lambda: state(nodes) in ("idle", "mixed", "allocated"))


def test_without_slurmctld_jobs_go_on_and_it_is_told_later(nodes: LocalCluster) -> None:
    job = runs(nodes, "sleep 11")
    controller = container_name(nodes.request.name, "controller")
    podman("stop", "--time", "10", controller)
    leaves = subprocess.Popen(
        ["podman", "exec", container_name(nodes.request.name, NODE), LEAVE, "90"],
        env=nodes.shells.environment,
    )
    try:
        # Its slurmstepd goes on until it has told slurmctld.
        nodes.wait_until(
            "it has ended", lambda: "sleep 11" not in [line for _, line in nodes.processes(NODE)]
        )
        assert leaves.poll() is None
    finally:
        podman("start", controller)
    assert leaves.wait(180) == 0
    nodes.wait_until("slurmctld knows", lambda: nodes.job(job)["JobState"] == "COMPLETED")
    assert state(nodes) == ""


@pytest.mark.others_at_night
def test_without_slurmctld_for_good_it_ends_early(nodes: LocalCluster) -> None:
    controller = container_name(nodes.request.name, "controller")
    podman("stop", "--time", "10", controller)
    try:
        left = nodes.on(NODE, LEAVE, "900")
    finally:
        podman("start", controller)
    assert left.status == 0
    assert "slurmctld does not answer" in left.err
    nodes.wait_until_slurmctld_answers()


@pytest.mark.others_at_night
def test_what_never_registered_leaves_at_once(nodes: LocalCluster) -> None:
    nodes.on(NODE, "rm", REGISTERED).ok()
    left = nodes.on(NODE, LEAVE, "900", timeout_s=60)
    assert (left.status, "is not registered" in left.err) == (0, True)


@pytest.mark.others_at_night
def test_a_host_that_is_called_otherwise_is_the_same_node(nodes: LocalCluster) -> None:
    """Root in a job may have the right to name the host: no other node is drained for that."""
    nodes.on(NODE, "hostname", "worker-2")
    nodes.on(NODE, "env", "CELLBLOCK_NODE=worker-2", LEAVE, "9").ok()
    assert state(nodes) == ""
    assert nodes.on("controller", "sinfo", "-hN", "-n", "worker-2", "-o", "%T").ok().strip() == "idle"


def test_root_in_a_job_neither_sees_nor_writes_what_is_read(nodes: LocalCluster) -> None:
    """The file of the probe is outside the jail; a slurmstepd of a job's own does not hold up the end."""
    look = f"test ! -e {REGISTERED} && ! touch {REGISTERED} && cp /bin/sleep /tmp/slurmstepd && echo well"
    done = nodes.on("login", "srun", "-w", NODE, "--chdir=/", "--mem=1", "sh", "-c", look)
    assert done.out == "well\n", done
    assert nodes.on(NODE, "stat", "-c", "%a %u", str(Path(REGISTERED).parent)).ok() == "700 0\n"
