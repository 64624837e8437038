# SPDX-License-Identifier: Apache-2.0
"""What goes wrong while a job runs: with its sources, with what the node keeps of it, with slurmd."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.integration.faults.attempt import causes
from tests.integration.faults.node import (
    HOLDER,
    WORKER,
    container_pid,
    extra_line,
)
from tests.integration.faults.node_mounts import on_node
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]


@dataclass(frozen=True)
class Job:
    """An allocation of the worker, in which a test runs steps."""

    cluster: LocalCluster
    user: str
    id: str

    def step(self, script: str, *options: str) -> str:
        """Run a step; its output."""
        where = (f"--jobid={self.id}", "--overlap", "--mpi=none", "-n1", *options)
        return self.cluster.jail("srun", *where, "sh", "-c", script, user=self.user).ok()

    def fails(self, script: str) -> str:
        """Run a step that must not start; its error output."""
        where = (f"--jobid={self.id}", "--overlap", "--mpi=none", "-n1")
        done = self.cluster.jail("srun", *where, "sh", "-c", script, user=self.user)
        assert done.status != 0
        assert not done.out
        return done.err


@pytest.fixture
def job(cluster: LocalCluster, user: str) -> Iterator[Job]:
    done = cluster.jail("salloc", "--no-shell", "-w", WORKER, "-n1", user=user)
    done.ok()
    found = Job(cluster, user, done.err.rpartition("Granted job allocation ")[2].split()[0])
    yield found
    cluster.jail("scancel", found.id, user=user).ok()


def holder(job: Job, script: str) -> str:
    """A shell in the job's directory of the holder, on the worker."""
    return job.cluster.on(WORKER, "sh", "-c", f"cd {HOLDER}/{job.id} && {script}").ok()


def test_a_source_that_goes_while_a_job_runs_fails_its_next_step_and_no_other(
    cluster: LocalCluster, job: Job
) -> None:
    cluster.on(WORKER, "sh", "-c", "mkdir /run/tools; echo 1 > /run/tools/version").ok()
    with extra_line("/run/tools /srv none bind,ro")(cluster):
        assert job.step("cat /srv/version") == "1\n"
        cluster.on(WORKER, "mv", "/run/tools", "/run/gone").ok()
        found = causes(job.fails("echo it ran"))
        assert len(found) == 1
        assert '/srv: open_tree: No such file or directory (ENOENT): the source "/run/tools"' in found[0]
        cluster.on(WORKER, "mv", "/run/gone", "/run/tools").ok()
        assert job.step("cat /srv/version") == "1\n"
    cluster.on(WORKER, "rm", "-r", "/run/tools").ok()


def test_a_source_that_may_fail_is_left_out(cluster: LocalCluster, job: Job) -> None:
    with extra_line("/does/not/exist /srv none bind,nofail")(cluster):
        assert job.step("echo it ran") == "it ran\n"


def test_a_changed_plan_counts_from_the_next_step_on(cluster: LocalCluster, job: Job) -> None:
    # ls needs the target, which the volume has; the node's hosts file is what the plan puts there.
    assert job.step("ls /srv; touch /tmp/kept") == ""
    with extra_line("/etc/hosts /srv/hosts none bind,x-create=file")(cluster):
        assert WORKER in job.step("cat /srv/hosts; ls /tmp/kept")
    assert job.step("cat /srv/hosts; ls /tmp/kept") == "/tmp/kept\n"
    (cluster.root / "srv" / "hosts").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        "truncate -s 10 record",
        ": > record",
        "head -c 4096 /dev/urandom > record",
        "printf '\\377\\377\\377\\377\\377\\377\\377\\377' | dd of=record bs=1 seek=160 conv=notrunc",
        "rm record",
        "umount -l tasks",
        "umount -l home window",
        "rm -f record.new; mkdir record.new",
        "umount -l spool",
        "umount -l '!tmp'",
    ],
)
def test_a_step_survives_damage_to_what_the_node_keeps_of_its_job(job: Job, damage: str) -> None:
    job.step("true")
    pid = container_pid(job.cluster)
    for line in damage.split("; "):
        if line.startswith("umount"):
            for place in line.split()[2:]:
                path = f"{HOLDER}/{job.id}/{place.strip(chr(39))}"
                # Not there: such a plan keeps no namespaces.
                if not holder(job, f"grep -F {path!r} /proc/1/mountinfo || true"):
                    continue
                on_node(pid, "umount", path)
        else:
            holder(job, f"({line}) 2>/dev/null || true")
    for _ in range(2):
        assert job.step("test -e /etc/cellblock/jail-release && echo works") == "works\n"


def test_steps_that_start_at_once_as_the_first_of_a_job_share_its_tmp(
    cluster: LocalCluster, user: str
) -> None:
    script = (
        "for i in 1 2 3 4 5 6; do srun --overlap --mpi=none -n1 touch /tmp/$i & done; wait; cd /tmp; ls [1-6]"
    )
    done = cluster.jail("salloc", "-w", WORKER, "-n1", "srun", "--overlap", "sh", "-c", script, user=user)
    assert done.ok().split() == ["1", "2", "3", "4", "5", "6"]


def make_leftover(cluster: LocalCluster, job: str) -> None:
    """What a node that lost its slurmd keeps of a job: a directory with a mount."""
    cluster.on(WORKER, "mkdir", "-p", f"{HOLDER}/{job}/!tmp").ok()
    on_node(container_pid(cluster), "mount", f"{HOLDER}/{job}/!tmp")


def kept_jobs(cluster: LocalCluster) -> list[str]:
    # Beside them are directories of users who have jobs.
    return [name for name in cluster.on(WORKER, "ls", HOLDER).ok().split() if name.isdigit()]


def test_leftovers_go_when_another_job_starts_and_a_live_jobs_own_stay(
    cluster: LocalCluster, user: str, job: Job
) -> None:
    job.step("touch /tmp/kept")
    make_leftover(cluster, "4000000")
    cluster.jail("srun", "-w", WORKER, "true", user=user).ok()
    cluster.wait_until("only the live job is kept", lambda: kept_jobs(cluster) == [job.id])
    assert job.step("ls /tmp/kept") == "/tmp/kept\n"


def test_a_job_is_kept_while_slurmctld_knows_it_even_if_all_its_slurmstepds_were_killed(
    cluster: LocalCluster, user: str, job: Job
) -> None:
    job.step("touch /tmp/kept")
    kill = f"""for p in /proc/[0-9]*; do case $(tr '\\0' ' ' < $p/cmdline) in
        "slurmstepd: [{job.id}."*) kill -KILL ${{p#/proc/}} && echo killed;; esac; done 2>/dev/null; true"""
    assert "killed" in cluster.on(WORKER, "sh", "-c", kill).ok()
    cluster.jail("srun", "-w", WORKER, "true", user=user).ok()
    assert cluster.job(job.id)["JobState"] == "RUNNING"
    assert job.step("ls /tmp/kept") == "/tmp/kept\n"


def test_a_job_lives_on_when_slurmd_is_killed_and_started_again(
    cluster: LocalCluster, user: str, job: Job
) -> None:
    job.step("touch /tmp/kept")
    make_leftover(cluster, "4000000")
    cluster.restart_slurmd(WORKER)
    cluster.wait_until(
        "slurmd serves", lambda: cluster.jail("srun", "-w", WORKER, "true", user=user).status == 0
    )
    assert job.step("ls /tmp/kept") == "/tmp/kept\n"
    cluster.jail("scancel", job.id, user=user).ok()
    cluster.wait_until("nothing is kept", lambda: not kept_jobs(cluster))
