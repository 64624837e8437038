# SPDX-License-Identifier: Apache-2.0
"""Files that Slurm brings, reads and writes for a job."""

from __future__ import annotations

import re

import pytest

from tests.integration.jobs import home, output, sbatch, script_file, srun
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]


@pytest.fixture(scope="module")
def brings(cluster: LocalCluster) -> str:
    """A user without other jobs: those of `slow_jobs` last a minute."""
    cluster.add_user("brings")
    return "brings"


def test_sbcast_brings_a_file_to_where_jobs_see_it(cluster: LocalCluster, brings: str) -> None:
    script = "cp /usr/bin/uname tool; sbcast -f tool tool; srun /run/bcast/tool -n"
    done = cluster.jail("salloc", "-N2", "sh", "-c", script, user=brings)
    assert sorted(done.ok().split()) == ["worker-1", "worker-2"]
    wait_until_gone(cluster, "tool")


def wait_until_gone(cluster: LocalCluster, name: str) -> None:
    """What sbcast leaves goes with the user's last job on the node."""
    gone = ("test", "!", "-e", f"/run/bcast/{name}")
    workers = ("worker-1", "worker-2")
    cluster.wait_until(
        f"{name} is gone", lambda: all(cluster.on(worker, *gone).status == 0 for worker in workers)
    )


def test_a_node_has_room_for_what_it_notes_of_hundreds_of_jobs(cluster: LocalCluster, brings: str) -> None:
    """A page for each, in memory of its own: a job that finds no room fails."""
    srun(cluster, brings, "-w", "worker-1", "true").ok()
    note = "mkdir /run/cellblock/jail/other-$n && head -c 4096 /dev/zero >/run/cellblock/jail/other-$n/record"
    try:
        cluster.on("worker-1", "sh", "-c", f"for n in $(seq 1000); do {note} || exit 1; done").ok()
        srun(cluster, brings, "-w", "worker-1", "true").ok()
    finally:
        cluster.on("worker-1", "sh", "-c", "rm -r /run/cellblock/jail/other-*")


def test_srun_brings_its_program(cluster: LocalCluster, brings: str) -> None:
    cluster.jail("cp", "/usr/bin/uname", "brought", user=brings).ok()
    out = srun(cluster, brings, "-N2", "--bcast", "./brought", "-n").ok()
    assert sorted(out.split()) == ["worker-1", "worker-2"]
    wait_until_gone(cluster, "brought")


PLACES = (
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/dev/mqueue",
    "/run",
    "/run/munge",
    "/var/spool/slurmd",
    "/var/log",
)


def test_sbcast_writes_nowhere_else(cluster: LocalCluster, user: str) -> None:
    """slurmd serves it outside the jail, without asking a SPANK plugin."""
    script = f"echo text > note; for place in {' '.join(PLACES)}; do sbcast -f note $place/note; done"
    done = cluster.jail("salloc", "-w", "worker-1", "sh", "-c", script, user=user)
    # With auth/slurm there is no /run/munge.
    refused = re.findall("Permission denied|Read-only file system|No such file or directory", done.err)
    assert len(refused) == len(PLACES), done.err
    found = cluster.on("worker-1", "find", *PLACES, "-xdev", "-name", "note").out
    assert not found


@pytest.mark.parametrize("there", ["true", "exec 3<>fifo"], ids=["nobody", "somebody who reads nothing"])
def test_sbcast_onto_a_fifo_does_not_keep_slurmd_waiting(
    cluster: LocalCluster, user: str, there: str
) -> None:
    """A user's home is below /mnt/jail outside: slurmd waits for who opens the file there, or reads."""
    fifo = f"/mnt/jail/root/home/{user}/fifo"
    script = f"rm -f fifo; mkfifo fifo; {there}; head -c 1000000 /dev/zero > zeros; echo text > note"
    script += f"; timeout 60 sbcast -f zeros {fifo}; timeout 60 sbcast -f note ok"
    done = cluster.jail(
        "salloc", "-w", "worker-1", "sh", "-c", f"{script}; srun cat /run/bcast/ok", user=user
    )
    assert "REQUEST_FILE_BCAST(worker-1)" in done.err
    assert done.out == "text\n"


def test_a_job_that_waits_for_a_fifo_is_cancelled_whatever_its_name(cluster: LocalCluster, user: str) -> None:
    cluster.jail("sh", "-c", "rm -f waits; mkfifo waits", user=user).ok()
    named = ("sbatch", "--parsable", "-J", "x JobState=RUNNING", "-o", "waits", "--wrap", "true")
    job = cluster.jail(*named, user=user).ok().strip()
    state = ("squeue", "--noheader", f"--jobs={job}", "--format=%T")
    cluster.wait_until("it runs", lambda: "RUNNING" in cluster.on("controller", *state).out)
    cluster.jail("scancel", job, user=user).ok()
    over = ("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")
    cluster.wait_until(
        "it is over", lambda: cluster.on("controller", *over).out.split()[:1] in ([], ["CANCELLED"])
    )


@pytest.mark.parametrize("path", ["/usr/bin/evil", "/usr/lib/evil.so", "/etc/evil", "/root/evil", "/evil"])
def test_sbcast_by_root_cannot_change_the_system_of_the_worker(cluster: LocalCluster, path: str) -> None:
    script = f"echo text > /root/note; sbcast -f /root/note {path}"
    done = cluster.client("salloc", "-w", "worker-1", "sh", "-c", script, user="root")
    assert "Read-only file system" in done.err
    assert cluster.on("worker-1", "test", "-e", path).status == 1


def test_a_copy_in_a_task_is_in_the_jobs_own_tmp(cluster: LocalCluster, user: str) -> None:
    script = "echo text > data; srun --ntasks-per-node=1 cp data /tmp; srun --ntasks-per-node=1 cat /tmp/data"
    done = cluster.jail("salloc", "-N2", "sh", "-c", script, user=user)
    assert done.ok().split() == ["text", "text"]


def test_array_outputs_are_named_by_array_and_element(cluster: LocalCluster, user: str) -> None:
    job = sbatch(cluster, user, "echo $SLURM_ARRAY_JOB_ID", "--array=3,5", "--output=element.%A_%a")
    names = {path.name for path in home(cluster, user).glob("element.*")}
    assert names == {f"element.{job}_3", f"element.{job}_5"}
    assert output(cluster, user, f"element.{job}_5") == f"{job}\n"


def test_scontrol_shows_paths_as_the_user_wrote_them(cluster: LocalCluster, user: str) -> None:
    (home(cluster, user) / "work").mkdir(exist_ok=True)
    path = script_file(cluster, user, "job.sh", "#!/bin/sh\ntrue\n")
    options = ("--parsable", "--hold", "-D", f"/home/{user}/work", "-o", "rel.out", "-e", "/tmp/err.txt")
    job = cluster.jail("sbatch", *options, path, user=user).ok().strip()
    shown = cluster.job(job)
    cluster.jail("scancel", job, user=user).ok()
    assert shown["Command"] == path
    assert shown["WorkDir"] == f"/home/{user}/work"
    assert shown["StdOut"] == f"/home/{user}/work/rel.out"
    assert shown["StdErr"] == "/tmp/err.txt"


def test_standard_input_is_a_file_of_the_jail(cluster: LocalCluster, user: str) -> None:
    (home(cluster, user) / "in.txt").write_text("a line\n")
    assert srun(cluster, user, "-i", f"/home/{user}/in.txt", "cat").ok() == "a line\n"
    sbatch(cluster, user, "cat", "-i", "in.txt", "-o", "copied.out")
    assert output(cluster, user, "copied.out") == "a line\n"


def test_output_none_is_no_output(cluster: LocalCluster, user: str) -> None:
    assert srun(cluster, user, "-o", "none", "echo", "unheard").ok() == ""
    assert not (home(cluster, user) / "none").exists()
