# SPDX-License-Identifier: Apache-2.0
"""What slurmctld tells slurmdbd, and slurmdbd the database, is kept, whichever of them ends between."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.facts import state
from cellblock.paths import PROJECT
from tests.integration.conftest import default_variant, other_variants, running_cluster
from tests.integration.jobs import accounted_state, ended, sbatch, submit
from tests.integration.local_cluster import LocalCluster, podman

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", params=[default_variant(), *other_variants()])
def recorded(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster with accounting, and a user."""
    with running_cluster("records", request.param) as running:
        running.add_user("emil")
        yield running


def send(cluster: LocalCluster, signal: str, host: str, program: str) -> None:
    numbers = " ".join(cluster.numbers_of(host, program))
    cluster.on(host, "sh", "-c", f"kill -{signal} {numbers}").ok()


def test_slurmctld_goes_on_without_slurmdbd_and_nothing_is_lost(recorded: LocalCluster) -> None:
    for name in ("accounting", "database"):
        podman("kill", container_name(recorded.request.name or "", name))
    number = recorded.jail("srun", "-D/", "sh", "-c", "echo $SLURM_JOB_ID", user="emil").ok().strip()
    for name in ("database", "accounting"):
        podman("start", container_name(recorded.request.name or "", name))
    recorded.wait_until("the job arrives", lambda: accounted_state(recorded, number) == "COMPLETED")


def test_what_waits_for_slurmdbd_outlives_a_slurmctld_that_is_killed(recorded: LocalCluster) -> None:
    waiting = state.folder(recorded.request.name or "") / "slurmctld/dbd.messages"
    step = ("srun", "-D/", "sh", "-c", "echo $SLURM_JOB_ID")
    over, goes_on = [], submit(recorded, "emil", "srun true; sleep 600", "-D/", "-o/dev/null")
    recorded.wait_until("it is known", lambda: accounted_state(recorded, goes_on) == "RUNNING")

    send(recorded, "STOP", "accounting", "node-supervise")  # who would start it again
    send(recorded, "KILL", "accounting", "slurmdbd")
    for _ in range(2):
        over += recorded.jail(*step, user="emil").ok().split()
        over += [sbatch(recorded, "emil", "srun true", "-D/", "-o/dev/null")]
        send(recorded, "KILL", "controller", "slurmctld")
        recorded.wait_until("it answers", lambda: recorded.on("controller", "scontrol", "ping").status == 0)
    assert waiting.stat().st_size
    recorded.on("controller", "scancel", goes_on).ok()
    ended(recorded, goes_on)
    send(recorded, "CONT", "accounting", "node-supervise")

    def told() -> dict[str, list[str]]:
        """Job or step -> its states, of each row that the accounting has of it."""
        asked = ("sacct", "-nP", "--allusers", "--duplicates", "--jobs", ",".join([*over, goes_on]))
        states: dict[str, list[str]] = {}
        for line in recorded.on("controller", *asked, "--format=jobid,state").out.splitlines():
            number, _, word = line.partition("|")
            states.setdefault(number, []).append(word.split()[0])
        return states

    wanted = {**{job: ["COMPLETED"] for job in over}, goes_on: ["CANCELLED"]}

    def settled() -> bool:
        known = told()
        return {job: known.get(job) for job in wanted} == wanted

    recorded.wait_until("each is over, once", settled)
    assert [one for one, states in told().items() if "." in one and len(states) != 1] == []
    assert {told()[f"{job}.0"][0] for job in over} == {"COMPLETED"}
    recorded.wait_until("nothing waits", lambda: waiting.stat().st_size == 0)


def test_slurmdbd_answers_for_nothing_that_the_database_lost(recorded: LocalCluster) -> None:
    """Its queries were made, and the database died of the commit: nobody heard of the job again."""
    # As a backup begins: queries are made, and no change is kept until this client ends.
    stages = "".join(f"BACKUP STAGE {stage};" for stage in ("START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"))
    database = container_name(recorded.request.name or "", "database")
    backup = ["podman", "exec", database, "mariadb", "-e", f"{stages}SELECT SLEEP(600);"]

    def doing() -> str:
        listed = "SELECT state, info FROM information_schema.processlist"
        return recorded.on("database", "mariadb", "-Ns", "-e", listed).ok()

    with subprocess.Popen(backup, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as held:
        recorded.wait_until("no change is kept", lambda: "SLEEP" in doing())
        number = recorded.jail("srun", "-D/", "sh", "-c", "echo $SLURM_JOB_ID", user="emil").ok().strip()
        recorded.wait_until(
            "slurmdbd waits for a change to be kept", lambda: "backup lock\tcommit" in doing().lower()
        )
        send(recorded, "KILL", "database", "mariadbd")
        held.wait()
    recorded.wait_until("the job arrives", lambda: accounted_state(recorded, number) == "COMPLETED")


def test_a_job_that_slurmctld_has_forgotten_is_closed_as_the_page_says(recorded: LocalCluster) -> None:
    command = "sacctmgr show runawayjobs"
    assert f"build.py shell --admin {command}`" in (PROJECT / "docs/troubleshooting.md").read_text()
    number = recorded.jail("srun", "-D/", "sh", "-c", "echo $SLURM_JOB_ID", user="emil").ok().strip()
    recorded.wait_until("the job arrives", lambda: accounted_state(recorded, number) == "COMPLETED")
    # Another number, which slurmctld never had.
    forgotten = "99999"
    table = f"slurm_acct_db.`{recorded.request.name}_job_table`"
    waits = f"state = 0, time_start = 0, time_end = 0, id_job = {forgotten}"
    recorded.on("database", "mariadb", "-e", f"UPDATE {table} SET {waits} WHERE id_job = {number}").ok()
    assert accounted_state(recorded, forgotten) == "PENDING"
    assert forgotten in recorded.on("controller", *command.split(), stdin="y\n").ok()
    assert accounted_state(recorded, forgotten) not in ("PENDING", "RUNNING", "")
