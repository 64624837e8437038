# SPDX-License-Identifier: Apache-2.0
"""Two controllers: the second acts when the first is gone or hangs, and who was away writes nothing more."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.facts import state
from cellblock.cluster.up import bring_up
from cellblock.errors import UsageError
from cellblock.events import Events
from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.local_cluster import LocalCluster, podman

pytestmark = pytest.mark.integration

ON_EVERY_SLURM = "CELLBLOCK_TWO_CONTROLLERS" in os.environ
"""On one release it takes five minutes, in which little is computed; `--thorough` takes all of them."""

# Shorter than a site would have it: a test waits for them.
FILE = """\
accounting: {}
controller: {replicas: 2}
node_sets: [{name: worker, count: 1}]
slurm:
  extra:
    slurm.conf: |
      MessageTimeout=10
      SlurmctldTimeout=10
      SchedulerParameters=nohold_on_prolog_fail,batch_sched_delay=0,bf_interval=3,sched_interval=5
      KillWait=5
"""
SLEEP = ("sbatch", "--parsable", "-n1", "--mem=1", "--chdir=/", "--output=/dev/null", "--wrap=sleep 900")
# What is older is written down (docs/decisions/slurmctld-saves.md).
SAVED_AFTER_S = 0.5
# What end-replaced-slurmctld says, or job_submit/jail, whichever sees it first.
REPLACED = re.compile("acts as the controller now|another controller acts")
# Seconds: for a ping that waits for an answer, more than once.
TAKES_OVER_S = 180


@pytest.fixture(scope="module", params=[default_variant(), *(other_variants() if ON_EVERY_SLURM else ())])
def two(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with running_cluster("two", request.param, text=FILE) as running:
        running.add_user("ada")
        yield running


@pytest.fixture(autouse=True)
def as_before(two: LocalCluster) -> Iterator[None]:
    """What a test that failed has left is not the next one's."""
    yield
    two.on("controller-2", "scancel", "--user=ada")
    if acts(two) != "controller":
        bring_up(two.request, Events())


def acts(cluster: LocalCluster) -> str:
    """The host of the controller that acts, as this machine sees it."""
    return state.acting_controller(cluster.request.name)


def states(cluster: LocalCluster, *jobs: str) -> dict[str, str]:
    """The states of jobs, as slurmctld has them; asked from the second controller, which always runs here.

    Unknown while neither answers, as when one takes over.
    """
    shown = cluster.on("controller-2", "squeue", "--all", "--noheader", "--states=all", "--format=%A %T")
    known = dict(line.split() for line in shown.out.splitlines()) if shown.status == 0 else {}
    return {job: known.get(job, "unknown") for job in jobs}


def of_controller(cluster: LocalCluster, *command: str) -> None:
    podman(*command, container_name(cluster.request.name, "controller"))


def submit(cluster: LocalCluster) -> str:
    return cluster.client(*SLEEP, user="ada").ok().strip()


def test_the_second_acts_when_the_first_is_gone(two: LocalCluster) -> None:
    assert acts(two) == "controller"
    before = submit(two)
    two.wait_until("it runs", lambda: states(two, before)[before] == "RUNNING")
    time.sleep(SAVED_AFTER_S)
    of_controller(two, "kill", "--signal=KILL")
    two.wait_until("the second acts", lambda: acts(two) == "controller-2", TAKES_OVER_S)
    two.wait_until("it answers", lambda: two.on("controller-2", "squeue").status == 0)
    meanwhile = submit(two)
    two.wait_until(
        "a job of now runs beside the one of before",
        lambda: set(states(two, before, meanwhile).values()) == {"RUNNING"},
    )
    two.on("controller-2", "scancel", meanwhile).ok()
    # Commands of build.py find the one that is there.
    bring_up(two.request, Events())
    assert acts(two) == "controller"
    two.wait_until("the job of before runs on", lambda: states(two, before)[before] == "RUNNING")
    two.on("controller", "scancel", before).ok()

    def accounted() -> list[str]:
        asked = ("sacct", "-nXP", "--allusers", f"--jobs={before},{meanwhile}", "--format=jobid,state")
        return [line.split()[0] for line in two.on("controller", *asked).ok().splitlines()]

    two.wait_until(
        "each is in the accounting once, and over",
        lambda: accounted() == [f"{before}|CANCELLED", f"{meanwhile}|CANCELLED"],
    )


def test_a_machine_that_was_cut_off_and_stopped_does_not_undo_what_the_other_did(two: LocalCluster) -> None:
    first, kept = submit(two), submit(two)
    two.wait_until("they run", lambda: set(states(two, first, kept).values()) == {"RUNNING"})
    time.sleep(SAVED_AFTER_S)
    with cut_off(two), paused(two):
        two.wait_until("the second acts", lambda: acts(two) == "controller-2", TAKES_OVER_S)
        two.wait_until("it answers", lambda: two.on("controller-2", "squeue").status == 0)
        meanwhile = submit(two)
        two.on("controller-2", "scancel", first).ok()
        two.wait_until("it is over", lambda: states(two, first)[first] == "CANCELLED")
    # It ended, and came back as one that asks the other for its place.
    two.wait_until("the first acts again", lambda: acts(two) == "controller", TAKES_OVER_S)
    two.wait_until("it answers", lambda: two.on("controller", "squeue").status == 0)
    assert REPLACED.search(podman("logs", container_name(two.request.name, "controller")))
    found = states(two, first, kept, meanwhile)
    assert found[first] != "RUNNING"
    assert (found[kept], found[meanwhile]) == ("RUNNING", "RUNNING")
    two.on("controller", "scancel", kept, meanwhile).ok()


def test_a_slurmctld_that_hangs_is_ended_when_the_other_acts(two: LocalCluster) -> None:
    job = submit(two)
    two.wait_until("it runs", lambda: states(two, job)[job] == "RUNNING")
    time.sleep(SAVED_AFTER_S)
    two.on("controller", "sh", "-c", "kill -STOP $(pidof slurmctld)").ok()
    hung = two.on("controller", "pidof", "slurmctld").ok()
    # As when it hangs while it writes its heartbeat: Slurm's second controller alone would never act.
    state_of = state.folder(two.request.name) / "slurmctld"
    (state_of / "heartbeat").rename(state_of / "heartbeat.new")
    two.wait_until(
        "it is ended", lambda: two.on("controller", "pidof", "slurmctld").out != hung, TAKES_OVER_S
    )
    two.wait_until("commands are answered", lambda: states(two, job)[job] == "RUNNING")
    two.wait_until("the first acts again", lambda: acts(two) == "controller", TAKES_OVER_S)
    two.on("controller", "scancel", job).ok()


@contextmanager
def cut_off(cluster: LocalCluster) -> Iterator[None]:
    """Take the first controller's network away."""
    name = container_name(cluster.request.name, "controller")
    process = podman("inspect", "--format={{.State.Pid}}", name).strip()
    link = ("nsenter", f"--net=/proc/{process}/ns/net", "ip", "link", "set", "eth0")
    subprocess.run([*link, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run([*link, "up"], check=True)


@contextmanager
def paused(cluster: LocalCluster) -> Iterator[None]:
    """Stop all that runs in the first controller's container."""
    of_controller(cluster, "pause")
    try:
        yield
    finally:
        of_controller(cluster, "unpause")


def test_a_second_one_goes_and_comes(two: LocalCluster, tmp_path: Path) -> None:
    if two.status.release < "23.11":
        pytest.skip("Slurm 22.05 starts the whole cluster anew for it, as any change of its nodes")
    assert two.request.file
    file = tmp_path / "one.yaml"
    file.write_text(two.request.file.read_text().replace("replicas: 2", "replicas: 1"))
    bring_up(replace(two.request, file=file), Events())
    assert "controller-2" not in {one.name.rpartition("two")[2] for one in two.status.containers}
    hosts = two.on("controller", "sh", "-c", "scontrol show config | grep -c SlurmctldHost").ok()
    assert hosts.strip() == "1"
    two.client("srun", "true", user="ada").ok()
    bring_up(two.request, Events())
    assert " is UP" in two.on("controller-2", "scontrol", "ping").ok()
    two.client("srun", "true", user="ada").ok()


def test_docker_gives_no_addresses_that_stay(two: LocalCluster) -> None:
    with pytest.raises(UsageError, match="two controllers"):
        bring_up(replace(two.request, engine="docker"), Events())
