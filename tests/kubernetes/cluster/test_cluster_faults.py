# SPDX-License-Identifier: Apache-2.0
"""Machines and pods of the page's cluster go while jobs run: no job is lost, and nobody has to act."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from cellblock.bench.harness import machines
from cellblock.errors import CellblockError
from tests.kubernetes.helpers.page_cluster import GRACE_S, USER, PageCluster

pytestmark = pytest.mark.integration

_DELETIONS = int(os.environ.get("CELLBLOCK_POD_DELETIONS", "4"))
_SEED = int(os.environ.get("CELLBLOCK_FUZZ_SEED", "17"))
_GO = f"/home/{USER}/go"
_NODES = ("cpu-0", "cpu-1")
# Of a job: it runs until the file is there.
_UNTIL_GO = f"until [ -e {_GO} ]; do sleep 1; done"


def is_complete(cluster: PageCluster, job: str, restarts: int = 0) -> bool:
    """Whether accounting has a job's end, and how often it was queued again."""
    return cluster.state(job) == f"COMPLETED|{restarts}"


@pytest.fixture(autouse=True)
def as_before(cluster: PageCluster) -> None:
    cluster.until("the login node", lambda: cluster.is_ready("login-0"))
    cluster.run_as("rm", "-f", _GO)
    # Of a test that failed.
    cluster.slurm("scancel", "--user", USER)
    cluster.until("two idle nodes", cluster.serves)


def other_machine(machine: str) -> str:
    """Of the two."""
    return next(name for name in ("node-1", "node-2") if name != machine)


def node_on(cluster: PageCluster, machine: str) -> str:
    """A node whose pod is on that machine; one is brought there when there is none."""
    if machine not in map(cluster.machine, _NODES):
        cluster.kubernetes("cordon", other_machine(machine))
        try:
            cluster.kubernetes("delete", "pod", _NODES[1], "--namespace=slurm")
            cluster.until("a node there", lambda: cluster.is_ready(_NODES[1]) and cluster.serves())
        finally:
            cluster.kubernetes("uncordon", other_machine(machine))
    return next(each for each in _NODES if cluster.machine(each) == machine)


def starts_again(cluster: PageCluster, job: str) -> None:
    """Wait until a job is queued again, and runs."""
    cluster.until("a job that is queued again", lambda: cluster.restarts(job) == 1, 240)
    # Slurm lets such a job wait for two minutes from when all its nodes have ended it, and slurmd takes no
    # start of the second in which it ended the job. It may have begun.
    cluster.until("its first end", lambda: current_state(cluster, job) in ("PENDING", "RUNNING"))
    time.sleep(3)
    with contextlib.suppress(CellblockError):
        cluster.slurm("scontrol", "update", f"jobid={job}", "starttime=now")
    cluster.until("its second start", lambda: cluster.runs(job))


def current_state(cluster: PageCluster, job: str) -> str:
    """Of a job, as slurmctld has it; COMPLETING while it waits for nodes to end it, whatever comes then."""
    return cluster.slurm("squeue", "-h", "-j", job, "-o", "%T").strip()


def session(cluster: PageCluster, folder: Path) -> subprocess.Popen[str]:
    """A session of the user's on a login node, with a terminal."""
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    line = (folder / "key.pub").read_text().strip()
    cluster.run_as("sh", "-c", 'umask 077; mkdir -p ~/.ssh; echo "$0" >~/.ssh/authorized_keys', line)
    options = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-i", str(key))
    ssh = ["ssh", "-tt", *options, f"{USER}@{cluster.login_address()}"]
    started = subprocess.Popen(
        ssh,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert started.stdin
    started.stdin.write("echo here-$((40 + 2))\n")
    started.stdin.flush()
    until(started, "here-42")
    return started


def until(started: subprocess.Popen[str], text: str) -> None:
    """Read what a session prints until it has printed `text`."""
    assert started.stdout
    said = ""
    for line in started.stdout:
        said += line
        if text in line:
            return
    pytest.fail(f"no {text!r} in a session:\n{said}")


def test_a_machine_that_is_drained_loses_no_job_and_tells_its_sessions(
    cluster: PageCluster, tmp_path: Path
) -> None:
    machine = cluster.machine("login-0")
    node = node_on(cluster, machine)
    there = ("--nodelist", node, "--cpus-per-task=1", "--mem=10")
    short, long = cluster.submit_as("sleep 12", *there), cluster.submit_as(_UNTIL_GO, *there)
    cluster.until("running jobs", lambda: cluster.runs(short) and cluster.runs(long))
    try:
        with session(cluster, tmp_path) as ssh:
            options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={GRACE_S + 120}s")
            drain = subprocess.Popen(
                [f"{cluster.kubernetes.folder}/bin/kubectl", "drain", machine, *options],
                env={**os.environ, "KUBECONFIG": cluster.kubernetes.configuration},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            until(ssh, "This login node ends in")
            assert ssh.stdin
            ssh.stdin.close()
            assert ssh.stdout
            ssh.stdout.read()
        said = drain.communicate()[0]
        assert drain.returncode == 0, said
        cluster.until(
            "the node on another machine", lambda: cluster.nodes().get(node, "down") in ("idle", "mix")
        )
        assert cluster.machine(node) != machine != cluster.machine("login-0")
        starts_again(cluster, long)
        if cluster.state(short) != "COMPLETED|0":
            # slurmctld left with it and was back late: nobody heard of its end.
            starts_again(cluster, short)
        cluster.until("the short job", lambda: cluster.state(short) in ("COMPLETED|0", "COMPLETED|1"))
        cluster.run_as("touch", _GO)
        cluster.until("its end", lambda: is_complete(cluster, long, restarts=1))
    finally:
        cluster.kubernetes("uncordon", machine)


def test_a_pod_that_is_evicted_without_time_has_its_job_queued_again(cluster: PageCluster) -> None:
    job = cluster.submit_as(_UNTIL_GO, "--nodelist=cpu-1")
    cluster.until("a running job", lambda: cluster.runs(job))
    cluster.evict("cpu-1", 1)
    starts_again(cluster, job)
    cluster.run_as("touch", _GO)
    cluster.until("its end", lambda: is_complete(cluster, job, restarts=1))


def test_a_job_seconds_old_whose_pod_is_deleted_at_once_is_queued_again_soon(cluster: PageCluster) -> None:
    """slurmctld takes it for one that is still being launched, and does not look for it itself"""
    job = cluster.submit_as(_UNTIL_GO, "--nodelist=cpu-1", "--mem=10")
    cluster.until("a running job", lambda: cluster.runs(job))
    cluster.evict("cpu-1", 0)
    cluster.until("its pod", lambda: cluster.is_ready("cpu-1"), 180)
    kept = cluster.submit_as(_UNTIL_GO, "--nodelist=cpu-1", "--mem=10")
    # It was 112 s and more.
    cluster.until("a job that is queued again", lambda: cluster.restarts(job) == 1, 100)
    starts_again(cluster, job)
    assert cluster.runs(kept)
    cluster.run_as("touch", _GO)
    cluster.until("its end", lambda: is_complete(cluster, job, restarts=1))
    cluster.until("the end of the one that ran meanwhile", lambda: is_complete(cluster, kept))


@pytest.mark.parametrize("age_s", [0, 60], ids=["young", "a-minute"])
@pytest.mark.parametrize("script", [_UNTIL_GO, f"srun sh -c '{_UNTIL_GO}'"], ids=["script", "step"])
def test_a_job_over_two_nodes_of_which_one_has_its_pod_deleted_at_once_is_queued_again(
    script: str, age_s: int, cluster: PageCluster
) -> None:
    """slurmctld looks for the script only, which runs on the other"""
    job = cluster.submit_as(script, "--nodes=2", "--mem=10")
    cluster.until("a running job", lambda: cluster.runs(job))
    first = cluster.slurm("squeue", "-h", "-j", job, "-O", "BatchHost").strip()
    (other,) = {*_NODES} - {first}
    wanted = f"slurmstepd: [{job}.{'0' if 'srun' in script else 'extern'}]"
    cluster.until("its step", lambda: wanted in steps_on(cluster, other, job))
    time.sleep(age_s)
    cluster.evict(other, 0)
    cluster.until("its pod", lambda: cluster.is_ready(other), 180)
    cluster.until("a job that is queued again", lambda: cluster.restarts(job) == 1, 100)
    cluster.until("no step of it", lambda: not any(steps_on(cluster, node, job) for node in _NODES))
    starts_again(cluster, job)
    cluster.run_as("touch", _GO)
    cluster.until("its end", lambda: is_complete(cluster, job, restarts=1))


# salloc leaves a program that it was to run alone, if nothing else is said.
@pytest.mark.parametrize("command", ["salloc --kill-command", "srun"], ids=["salloc", "srun"])
def test_who_waits_for_a_job_whose_pod_is_deleted_at_once_is_told_and_gets_his_prompt_back(
    command: str, cluster: PageCluster, tmp_path: Path
) -> None:
    """such a job cannot begin again; without a step of its own slurmctld misses nothing of an allocation"""
    cluster.until("no earlier job", lambda: not cluster.slurm("squeue", "-h", "-u", USER).strip())
    with session(cluster, tmp_path) as ssh:
        assert ssh.stdin
        ssh.stdin.write(f"{command} --nodes=2 --mem=10 sleep 600; echo ended-$((40 + 2))\n")
        ssh.stdin.flush()
        cluster.until(
            "a running job", lambda: bool(cluster.slurm("squeue", "-h", "-t", "R", "-o", "%i").strip())
        )
        job = cluster.slurm("squeue", "-h", "-t", "R", "-o", "%i").strip()
        cluster.until("its processes", lambda: bool(steps_on(cluster, "cpu-1", job)))
        began = time.monotonic()
        cluster.evict("cpu-1", 0)
        until(ssh, f"the container ended that ran job {job} on cpu-1; the job ends")
        until(ssh, "ended-42")
        took_s = time.monotonic() - began
        ssh.stdin.write("exit\n")
        ssh.stdin.close()
    assert took_s < 180
    cluster.until("its end", lambda: cluster.state(job).startswith("CANCELLED"))


def steps_on(cluster: PageCluster, node: str, job: str) -> set[str]:
    """What the job's slurmstepds on a node are called."""
    look = "for pid in $(pidof slurmstepd); do tr '\\0' ' ' </proc/$pid/cmdline; echo; done; true"
    said = cluster.kubernetes("exec", node, f"--namespace={cluster.space}", "--", "sh", "-c", look)
    return {line.strip() for line in said.splitlines() if line.startswith(f"slurmstepd: [{job}.")}


def test_a_kubelet_that_ends_ends_no_job_and_a_machine_that_dies_has_its_jobs_queued_again(
    cluster: PageCluster,
) -> None:
    machine = other_machine(cluster.machine("controller-0"))
    node = node_on(cluster, machine)
    number = int(machine.removeprefix("node-"))
    quick, job = (
        cluster.submit_as(each, f"--nodelist={node}", "--mem=10") for each in ("sleep 5", _UNTIL_GO)
    )
    cluster.until("running jobs", lambda: cluster.runs(job) and (cluster.runs(quick) or cluster.state(quick)))
    command = machines.end_kubelet(cluster.kubernetes.folder, number)
    try:
        cluster.until("a job without kubelet", lambda: is_complete(cluster, quick))
        assert cluster.runs(job)
        machines.end_containers(number)
        cluster.until("slurmctld to notice", lambda: cluster.restarts(job) == 1, 240)
    finally:
        machines.start_kubelet(cluster.kubernetes.folder, number, command)
    cluster.until("the node", lambda: cluster.nodes().get(node) == "idle", 180)
    starts_again(cluster, job)
    cluster.until("the login node", lambda: cluster.is_ready("login-0"))
    cluster.run_as("touch", _GO)
    cluster.until("its end", lambda: is_complete(cluster, job, restarts=1))
    cluster.until("the node", cluster.serves, 180)


def test_all_pods_that_go_at_once_lose_no_job(cluster: PageCluster) -> None:
    """as of machines that lose their power, and have it again"""
    over, running = cluster.submit_as("true", "--mem=10"), cluster.submit_as(_UNTIL_GO, "--nodelist=cpu-0")
    waiting = cluster.submit_as("true", "--hold", "--mem=10")
    cluster.until("a job that is over", lambda: is_complete(cluster, over))
    cluster.until("a running job", lambda: cluster.runs(running))
    cluster.kubernetes("delete", "pods", "--all", f"--namespace={cluster.space}", "--grace-period=1")
    for pod in ("database-0", "accounting-0", "controller-0", "login-0", *_NODES):
        cluster.until(pod, lambda pod=pod: cluster.is_ready(pod), 240)
    starts_again(cluster, running)
    cluster.slurm("scontrol", "release", waiting)
    cluster.run_as("touch", _GO)
    cluster.until("its end", lambda: is_complete(cluster, running, restarts=1))
    cluster.until("the job that waited", lambda: is_complete(cluster, waiting))
    assert is_complete(cluster, over)


@pytest.mark.timeout(600 + 40 * _DELETIONS)
def test_controller_database_and_slurmdbd_that_go_under_load_lose_no_job_and_no_account(
    cluster: PageCluster,
) -> None:
    dice = random.Random(_SEED)
    pods = ["accounting-0", "database-0", "controller-0", "accounting-0"]
    jobs: set[str] = set()
    for number in range(_DELETIONS):
        pod = pods[number % len(pods)]
        jobs |= load(cluster)
        time.sleep(dice.uniform(0, 5))
        # As a drain asks, or as a machine does whose memory is full.
        seconds = dice.choice((1, 30))
        cluster.kubernetes(
            "delete", "pod", pod, "--namespace=slurm", f"--grace-period={seconds}", "--wait=false"
        )
        jobs |= load(cluster)
        cluster.until(f"{pod}, deletion {number}", lambda pod=pod: cluster.is_ready(pod), 180)
    assert len(jobs) >= 3 * _DELETIONS, "most of eight each time are taken: there is a load"
    cluster.until("the end of all jobs", lambda: not cluster.slurm("squeue", "-h", "-o", "%i").split(), 300)

    def recorded() -> dict[str, str]:
        said = cluster.slurm(
            "sacct", "-n", "-X", "-P", f"--user={USER}", "-S", "now-1days", "-o", "JobIDRaw,State,Start,End"
        )
        found = {line.split("|")[0]: line.split("|", 1)[1] for line in said.splitlines()}
        return {job: found.get(job, "") for job in jobs}

    def complete() -> bool:
        return all(state.startswith("COMPLETED|") and "Unknown" not in state for state in recorded().values())

    try:
        cluster.until("the accounting", complete, 120)
    except Exception:
        lost = {job: state for job, state in recorded().items() if not state.startswith("COMPLETED|")}
        pytest.fail(f"seed {_SEED}, {len(lost)} of {len(jobs)} jobs: {lost}")
    written = set(cluster.run_as("sh", "-c", "ls ~/did").split())
    assert jobs <= written, "they ran"


def load(cluster: PageCluster) -> set[str]:
    """Submits jobs of some seconds; returns the numbers of those that slurmctld took."""
    script = "mkdir -p ~/did; sleep $((RANDOM % 4)); srun -Q touch ~/did/$SLURM_JOB_ID"
    submit = f"timeout 60 sbatch --parsable --chdir=/tmp --output=/dev/null --mem=10 --wrap '{script}'"
    said = cluster.run_as("bash", "-c", f"for i in 1 2 3 4; do {submit} || sleep 1; done")
    return set(said.split())
