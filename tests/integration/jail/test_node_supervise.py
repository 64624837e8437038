# SPDX-License-Identifier: Apache-2.0
"""Workers live on: slurmd is started again and jobs go on; a fork bomb leaves a node to other users."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from cellblock.cluster.facts import host
from tests.integration.conftest import running_cluster
from tests.integration.jobs import ended, fresh_path, srun, submit
from tests.integration.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

NODE = "worker-1"
# Of one container. Slurm's daemons have some fifty threads there.
SMALL_PIDS_LIMIT = 512
# Every process of it forks as fast as it can. It ends by itself: where Slurm tracks jobs by parentage, which
# of them it finds is a matter of luck.
BOMB = "perl -e '$t = time + 20; while (time < $t) { fork }'"
# Users of nobody else on this machine: the kernel counts a uid's processes in all containers.
BOMBER, OTHER = ("bomber", "612340"), ("bystander", "612341")


def slurmd(cluster: LocalCluster) -> str:
    """The pid of slurmd on the node, in its container; empty while there is none."""
    script = (
        "for p in /proc/[0-9]*; do"
        ' case "$(tr "\\0" " " <"$p/cmdline" 2>/dev/null)" in "slurmd -D "*) echo "${p#/proc/}"; esac; done'
    )
    # Threads that slurmd forks to start a step have its command line for a moment.
    return (cluster.on(NODE, "sh", "-c", script).out.split() or [""])[0]


def wait_for_another(cluster: LocalCluster, pid: str) -> None:
    cluster.wait_until("another slurmd", lambda: slurmd(cluster) not in ("", pid))


def test_jobs_go_on_when_slurmd_is_killed(cluster: LocalCluster) -> None:
    cluster.add_user("grace")
    out = fresh_path(cluster, "grace", "survivor")
    folder = f"/home/grace/{out.name}"
    waits = f"echo start; until [ -e {folder}.go ]; do sleep 0.1; done; echo end"
    steps = f"srun --overlap sh -c {shlex.quote(waits)} >{folder}.step & {waits}; wait"
    fresh_path(cluster, "grace", f"{out.name}.go")
    step = fresh_path(cluster, "grace", f"{out.name}.step")
    job = submit(cluster, "grace", steps, "-w", NODE, "-o", folder)
    cluster.wait_until("both run", lambda: out.exists() and step.exists() and step.read_text() == "start\n")
    for signal in ("KILL", "ABRT", "SEGV"):
        # What it told a slurmd that then ended, slurmctld tells the next after three minutes only.
        cluster.wait_until_none_completes()
        pid = slurmd(cluster)
        cluster.on(NODE, "kill", f"-{signal}", pid).ok()
        wait_for_another(cluster, pid)
        assert srun(cluster, "grace", "-w", NODE, "--chdir=/", "hostname").ok() == f"{NODE}\n"
    cluster.jail("touch", f"{folder}.go", user="grace").ok()
    assert cluster.job(ended(cluster, job))["JobState"] == "COMPLETED"
    assert out.read_text() == "start\nend\n"
    assert step.read_text() == "start\nend\n"


def kill_with_slurmd(cluster: LocalCluster, *jobs: str) -> str:
    """End slurmd and slurmstepd of batch scripts; returns what is said by what then looks for lost jobs."""
    # The node's own waits for a minute and a half.
    look = "timeout 20 /usr/lib/cellblock/requeue-lost-jobs worker-1 1 2>&1"
    found = scripts(cluster)
    kill = f"sleep 2; kill -KILL {slurmd(cluster)} {' '.join(found[job] for job in jobs)}"
    return cluster.on(NODE, "sh", "-c", f"({kill}) & {look}").out


def scripts(cluster: LocalCluster) -> dict[str, str]:
    """Jobs whose batch script runs on the node, and the pids of its slurmstepd and of what that forked."""
    seen = """for p in /proc/[0-9]*; do echo "${p#/proc/} $(tr '\\0' ' ' <$p/cmdline)"; done 2>/dev/null"""
    found = re.findall(r"^(\d+) slurmstepd: \[(\d+)\.batch\]", cluster.on(NODE, "sh", "-c", seen).out, re.M)
    return {job: " ".join(pid for pid, of in found if of == job) for _, job in found}


@pytest.mark.every_slurm
def test_a_job_that_no_slurmd_runs_begins_again(cluster: LocalCluster) -> None:
    """as one whose launch a killed slurmd had answered: slurmctld sees its extern step, and waits

    Another job there has a socket that is called as one of slurmstepd's would be.
    """
    cluster.add_user("grace")
    options = ("-w", NODE, "-n1", "-o", "/dev/null")
    lost = submit(cluster, "grace", "sleep 600", *options)
    bound = f'bind(S, pack_sockaddr_un("\\0x /var/spool/slurmd/{NODE}_{lost}.4294967291")) or die;'
    socket = f"perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); {bound} sleep 600'"
    kept = submit(cluster, "grace", socket, "--no-requeue", *options)
    try:
        cluster.wait_until("both run", lambda: {lost, kept} <= set(scripts(cluster)))
        said = kill_with_slurmd(cluster, lost)
        assert f"begun job {lost}, which waited since; it is requeued\n" in said
        assert cluster.job(lost)["Restarts"] == "1"
        assert (kept in said, cluster.job(kept)["JobState"]) == (False, "RUNNING")
        said = kill_with_slurmd(cluster, kept)
        assert f"begun job {kept}, which waited since; it is cancelled, for it may not be requeued\n" in said
        assert cluster.job(ended(cluster, kept))["JobState"] == "CANCELLED"
    finally:
        cluster.on("controller", "scancel", lost, kept)


def test_tasks_of_an_array_that_no_slurmd_runs_begin_again(cluster: LocalCluster) -> None:
    """one of them has the number of the whole array"""
    cluster.add_user("grace")
    array = submit(cluster, "grace", "sleep 600", "-w", NODE, "-n1", "--array=1-2", "-o", "/dev/null")
    try:
        cluster.wait_until("both run", lambda: array in scripts(cluster) and len(scripts(cluster)) == 2)
        said = kill_with_slurmd(cluster, *scripts(cluster))
        for task in (f"{array}_1", f"{array}_2"):
            assert f"begun job {task}, which waited since; it is requeued\n" in said
            assert cluster.job(task)["Restarts"] == "1"
    finally:
        cluster.on("controller", "scancel", array)


def test_the_cluster_goes_on_when_slurmctld_is_killed(cluster: LocalCluster) -> None:
    """As by a request that a user made up, more often than one that is configured wrongly is tried."""
    cluster.add_user("grace")
    for _ in range(7):
        cluster.on("controller", "pkill", "-SEGV", "-x", "slurmctld")
        cluster.wait_until("it answers", lambda: cluster.on("controller", "scontrol", "ping").status == 0)
    done = srun(cluster, "grace", "--chdir=/", "hostname")
    assert done.ok().startswith("worker-")


def test_slurmd_is_configured_anew_in_place(cluster: LocalCluster) -> None:
    """it then executes itself, with the pid that it has"""
    pid = slurmd(cluster)
    cluster.reconfigure()
    cluster.wait_until(
        "it serves", lambda: srun(cluster, "root", "-w", NODE, "--chdir=/", "true").status == 0
    )
    assert slurmd(cluster) == pid


@pytest.fixture(scope="module")
def small() -> Iterator[LocalCluster]:
    """A cluster of containers that have few processes, and two users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "pids_limit", lambda: SMALL_PIDS_LIMIT)
        with running_cluster("small") as running:
            for name, uid in (BOMBER, OTHER):
                running.jail("useradd", "--create-home", "--shell", "/bin/bash", "--uid", uid, name).ok()
            yield running


def of_uid(cluster: LocalCluster, uid: str) -> int:
    """Processes of a user on the node, looked at from this machine: nothing more is to be started there."""
    return sum(owner == uid for owner, _ in cluster.processes(NODE))


def test_a_users_fork_bomb_leaves_the_node_to_others(small: LocalCluster) -> None:
    before = slurmd(small)
    nproc = SMALL_PIDS_LIMIT // 8
    job = submit(small, BOMBER[0], BOMB, "-w", NODE, "-o", "/dev/null")
    try:
        small.wait_until("it is full", lambda: of_uid(small, BOMBER[1]) >= nproc - 2)
        for _ in range(5):
            assert (
                srun(small, OTHER[0], "--overcommit", "-w", NODE, "--chdir=/", "hostname").ok() == f"{NODE}\n"
            )
        assert of_uid(small, BOMBER[1]) <= nproc
        assert slurmd(small) == before
    finally:
        small.jail("scancel", job, user=BOMBER[0])
    ended(small, job)
    small.wait_until("nothing of it is left", lambda: of_uid(small, BOMBER[1]) == 0)


def test_a_node_that_root_inside_filled_comes_back(small: LocalCluster) -> None:
    """the kernel does not count root's processes: slurmd may end, jobs and the container do not"""
    victim = fresh_path(small, OTHER[0], "victim")
    fresh_path(small, OTHER[0], f"{victim.name}.go")
    # It starts nothing while the node is full.
    script = f'exec perl -e \'sleep 1 until -e "{victim.name}.go"; print "end\\n"\''
    job = submit(small, OTHER[0], script, "-w", NODE, "-o", f"/home/{OTHER[0]}/victim")
    small.wait_until("it runs", lambda: small.job(job)["JobState"] == "RUNNING")
    bomb = submit(small, "root", BOMB, "-w", NODE, "-o", "/dev/null")
    # While the node is full nothing can be asked. What ends meanwhile is not heard of for minutes.
    looked_for = (NODE, "pgrep", "-f", r"time \+ 20")
    small.wait_until("it began", lambda: small.on(*looked_for).status != 1)
    small.wait_until("it is over", lambda: small.on(*looked_for).status == 1)
    # Where its slurmstepd found no room for a thread at the end, slurmctld does not hear of it for minutes.
    small.on("controller", "scancel", bomb).ok()
    small.jail("touch", f"/home/{OTHER[0]}/{victim.name}.go", user=OTHER[0]).ok()
    ended(small, job)
    assert victim.read_text() == "end\n"
    assert small.job(job)["JobState"] == "COMPLETED"
    assert srun(small, OTHER[0], "-w", NODE, "--chdir=/", "hostname").ok() == f"{NODE}\n"
