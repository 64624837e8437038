# SPDX-License-Identifier: Apache-2.0
"""slurmctld is killed, and started again: what had ended stays ended, what runs goes on."""

from __future__ import annotations

import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.jobs import fresh_path
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]

# What is older is written down: a tenth of what Slurm does.
SAVED_AFTER_S = 0.5
# jobcomp.lua writes it.
ENDED = "/var/lib/slurm/slurmctld/ended-jobs"
# In slurmctld's place: reads what comes on its port, answers nothing, and closes the connection.
READS_AND_DIES = r"""
use IO::Socket::INET;
my $listener = IO::Socket::INET->new(LocalPort => 6817, Listen => 16, ReuseAddr => 1) or die "$@";
while (1) {
    vec(my $ready = '', fileno $listener, 1) = 1;
    select($ready, undef, undef, 0.1) > 0 or next;
    my $client = $listener->accept or next;
    sysread $client, my $read, 65536;
    close $client;
}
"""


def kill_slurmctld(cluster: LocalCluster) -> None:
    cluster.on("controller", "sh", "-c", "kill -KILL $(pidof slurmctld)").ok()
    cluster.wait_until_slurmctld_answers()


def running(cluster: LocalCluster) -> list[str]:
    options = ("--all", "--sort=i", "--noheader", "--states=RUNNING,COMPLETING,SUSPENDED", "--format=%A")
    return cluster.on("controller", "squeue", *options).ok().split()


def test_what_began_and_ended_shortly_before_is_known(cluster: LocalCluster, user: str) -> None:
    """slurmctld saves at once, though it has saved something else a moment before."""
    sleeper = ("sbatch", "--parsable", "-n1", "--chdir=/", "--output=/dev/null", "--wrap=sleep 600")
    job = ""
    try:
        cluster.client("srun", "-N2", "--mpi=none", "--chdir=/", "true", user=user).ok()
        job = cluster.client(*sleeper, user=user).ok().strip()
        cluster.wait_until("it runs", lambda: cluster.job(job)["JobState"] == "RUNNING")
        time.sleep(SAVED_AFTER_S)
        kill_slurmctld(cluster)
        assert running(cluster) == [job]
        assert cluster.job(job)["Restarts"] == "0"
    finally:
        cluster.on("controller", "scancel", job)


def test_what_sbatch_said_is_known(cluster: LocalCluster, user: str) -> None:
    """It is saved before sbatch has its answer, though something else was saved a moment before."""
    submit = "sbatch --parsable --hold -n1 -D/ -o/dev/null --wrap=true"
    jobs: list[str] = []
    try:
        for _ in range(6):
            script = f"{submit} && {submit} && {submit} && kill -KILL $(pidof slurmctld)"
            jobs += cluster.on("controller", "sh", "-c", script).ok().split()
            cluster.wait_until_slurmctld_answers()
        shown = cluster.on("controller", "squeue", "--all", "-h", "--states=PENDING", "--format=%A").ok()
        assert [job for job in jobs if job not in shown.split()] == []
    finally:
        cluster.on("controller", "scancel", *jobs)


def test_a_job_that_the_scheduler_started_by_itself_goes_on(cluster: LocalCluster, user: str) -> None:
    """Slurm saves nothing when the backfill scheduler starts a job: it began again, and its node drained."""
    later = ("sbatch", "--parsable", "-n1", "--chdir=/", "--output=/dev/null", "--begin=now+2")
    job = cluster.client(*later, "--wrap=sleep 600", user=user).ok().strip()
    try:
        cluster.wait_until("it runs", lambda: cluster.job(job)["JobState"] == "RUNNING")
        time.sleep(SAVED_AFTER_S)
        started = cluster.job(job)["StartTime"]
        kill_slurmctld(cluster)
        cluster.wait_until("it still runs", lambda: cluster.job(job)["JobState"] == "RUNNING")
        assert (cluster.job(job)["StartTime"], cluster.job(job)["Restarts"]) == (started, "0")
    finally:
        cluster.on("controller", "scancel", job)


def test_what_had_ended_unsaved_holds_no_worker(cluster: LocalCluster, user: str) -> None:
    """As if slurmctld were killed between the end of a job and its next save."""
    allocate = ("salloc", "--no-shell", "-N1", "--chdir=/")
    jobs = [re.findall("allocation (\\d+)", cluster.client(*allocate, user=user).err)[0] for _ in range(2)]
    try:
        cluster.wait_until("they run", lambda: running(cluster) == jobs)
        time.sleep(SAVED_AFTER_S)
        cluster.on("controller", "sh", "-c", f"echo {jobs[0]} $(date +%s) 4 0 >>{ENDED}").ok()
        # What a power cut left of a line ends nothing.
        cluster.on("controller", "sh", "-c", f"printf %s {jobs[1]} >>{ENDED}").ok()
        kill_slurmctld(cluster)
        cluster.wait_until("one of them runs", lambda: running(cluster) == jobs[1:])
    finally:
        cluster.on("controller", "scancel", *jobs)


def test_what_had_ended_unsaved_ends_as_it_had(cluster: LocalCluster, user: str) -> None:
    """a task alone, though it has the number of its array, and with its own status"""
    sleeper = ("sbatch", "--parsable", "-n1", "--chdir=/", "--output=/dev/null", "--wrap=sleep 600")
    array = cluster.client(*sleeper, "--array=1-3", user=user).ok().strip()
    tasks = [f"{array}_{number}" for number in (1, 2, 3)]
    try:
        cluster.wait_until(
            "they run", lambda: [cluster.job(task)["JobState"] for task in tasks] == ["RUNNING"] * 3
        )
        time.sleep(SAVED_AFTER_S)
        numbers = {task: cluster.job(task)["JobId"] for task in tasks}
        assert array in numbers.values()
        of_array = next(task for task in tasks if numbers[task] == array)
        failed, stays = (task for task in tasks if task != of_array)
        lines = f"{array} $(date +%s) 3 0\\n{numbers[failed]} $(date +%s) 5 1792\\n"
        cluster.on("controller", "sh", "-c", f'printf "{lines}" >>{ENDED}').ok()
        kill_slurmctld(cluster)
        cluster.wait_until("two have ended", lambda: running(cluster) == [numbers[stays]])
        assert cluster.job(of_array)["JobState"] == "COMPLETED"
        assert (cluster.job(failed)["JobState"], cluster.job(failed)["ExitCode"]) == ("FAILED", "7:0")
    finally:
        cluster.on("controller", "scancel", array)


def test_what_jobcomp_writes(cluster: LocalCluster, user: str) -> None:
    for status, line in ((0, "3 0"), (7, "5 1792")):
        done = cluster.client(
            "srun", "-n1", "--chdir=/", "sh", "-c", f"echo $SLURM_JOB_ID; exit {status}", user=user
        )
        job = done.out.strip()
        written = cluster.on("controller", "grep", f"^{job} ", ENDED)
        assert re.fullmatch(rf"{job} \d+ {line}\n", written.ok())


@pytest.mark.others_at_night
def test_one_that_answers_nobody_is_started_again(cluster: LocalCluster) -> None:
    cluster.on("controller", "sh", "-c", "kill -STOP $(pidof slurmctld)").ok()
    # The one that always runs would wait for five minutes. It looks every 20 s, and waits 90 for an answer.
    watch = ("timeout", "--preserve-status", "120", "/usr/lib/cellblock/watch-slurmctld", "1")
    cluster.on("controller", "sh", "-c", f"nohup {' '.join(watch)} >/dev/null 2>&1 &").ok()
    cluster.wait_until_slurmctld_answers()


@pytest.mark.parametrize("command", [("srun", "--mpi=none"), ("salloc", "--quiet")])
def test_an_allocation_ends_though_slurmctld_dies_before_it_hears_of_it(
    cluster: LocalCluster, user: str, command: tuple[str, ...]
) -> None:
    """srun and salloc say once that it is over; it ran for ever, then."""
    # What ended a moment ago may complete yet.
    before = {*running(cluster)}
    began, over = (fresh_path(cluster, user, f"allocation-{name}") for name in ("began", "over"))
    task = f"cd /home/{user} && touch {began.name}; sleep 4; touch {over.name}"

    # From 25.11 on a step's slurmstepd waits for slurmctld before srun hears that the step is over.
    waits = ["worker-1", "worker-2"] if "srun" in command and cluster.status.release >= "25.11" else ["login"]

    def waits_for_an_answer() -> bool:
        """There is a connection to slurmctld's port 6817."""
        shown = "".join(cluster.on(node, "cat", "/proc/net/tcp").ok() for node in waits)
        lines = [line.split() for line in shown.splitlines()]
        return over.exists() and any(line[2].endswith(":1AA1") and line[3] == "01" for line in lines)

    with ThreadPoolExecutor() as pool:
        client = pool.submit(cluster.client, *command, "-n1", "--chdir=/", "sh", "-c", task, user=user)
        # salloc asks slurmctld for its nodes' state first.
        cluster.wait_until("it runs", began.exists)
        jobs = {*running(cluster)} - before
        time.sleep(SAVED_AFTER_S)
        cluster.on("controller", "sh", "-c", "kill -STOP $(pidof slurmctld)").ok()
        try:
            cluster.wait_until("the command waits for slurmctld", waits_for_an_answer)
        finally:
            kill_slurmctld(cluster)
        assert client.result().status == 0
    cluster.wait_until("its allocation is over", lambda: not jobs & {*running(cluster)})


@pytest.mark.parametrize("command", [("srun", "--mpi=none"), ("salloc", "--quiet")])
def test_an_allocation_ends_though_slurmctld_dies_of_what_it_hears(
    cluster: LocalCluster, user: str, command: tuple[str, ...]
) -> None:
    """It has read that the allocation is over, and has not done it: a connection that ends is no answer."""
    if "srun" in command and cluster.status.release >= "25.11":
        pytest.skip(
            "srun of 25.11 and later waits for a step's slurmstepd, which asks slurmctld again after 60 s"
        )
    before = {*running(cluster)}
    began, over = (fresh_path(cluster, user, f"read-allocation-{name}") for name in ("began", "over"))
    task = f"cd /home/{user} && touch {began.name}; sleep 4; touch {over.name}"
    supervisors = " ".join(cluster.numbers_of("controller", "node-supervise"))
    with ThreadPoolExecutor() as pool:
        client = pool.submit(cluster.client, *command, "-n1", "--chdir=/", "sh", "-c", task, user=user)
        cluster.wait_until("it runs", began.exists)
        jobs = {*running(cluster)} - before
        assert jobs
        time.sleep(SAVED_AFTER_S)
        number = "/run/instead-of-slurmctld.pid"
        dies = f"kill -STOP {supervisors}; kill -KILL $(pidof slurmctld)"
        cluster.on("controller", "sh", "-c", dies).ok()
        inside = ["podman", "exec", container_name(cluster.request.name or "", "controller")]
        reads = f'echo $$ >{number}; exec perl -e "$0"'
        instead = subprocess.Popen([*inside, "sh", "-c", reads, READS_AND_DIES])
        try:
            cluster.wait_until("it is over", over.exists)
            # It says so, and once more.
            time.sleep(1.5)
            assert instead.poll() is None
        finally:
            ends = f"kill -KILL $(cat {number}); kill -CONT {supervisors}"
            cluster.on("controller", "sh", "-c", ends).ok()
            instead.wait()
        cluster.wait_until_slurmctld_answers()
        assert client.result().status == 0
    cluster.wait_until("its allocation is over", lambda: not jobs & {*running(cluster)})
