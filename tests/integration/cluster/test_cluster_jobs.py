# SPDX-License-Identifier: Apache-2.0
"""Real jobs in a real cluster, whose / is the jail."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from cellblock.cluster import prove
from cellblock.events import Events
from tests.integration.jobs import fresh_path, home, sbatch, srun
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]


def test_the_proof_holds(cluster: LocalCluster) -> None:
    proof = prove(cluster.request.name, Events())
    assert set(proof.workers) == {"worker-1", "worker-2"}
    assert len(set(proof.workers.values())) == 1
    assert proof.read == proof.written == proof.login


def test_jobs_are_contained_from_their_prolog_on(cluster: LocalCluster, user: str) -> None:
    assert re.search(r"PrologFlags\s*=.*Contain", cluster.on("login", "scontrol", "show", "config").ok())
    job = (
        cluster.jail("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 60", user=user).ok().strip()
    )
    try:
        # The extern step is the container that Contain makes; slurmstepd shows it on the node.
        cluster.wait_until("the job runs", lambda: cluster.job(job)["JobState"] == "RUNNING")
        node = cluster.job(job)["NodeList"]
        assert f"slurmstepd: [{job}.extern]" in [command for _, command in cluster.processes(node)]
    finally:
        cluster.jail("scancel", job, user=user)


def test_srun_sees_the_jail_on_both_workers(cluster: LocalCluster, user: str) -> None:
    script = 'echo "$SLURMD_NODENAME $(sed -n s/^VARIANT=//p /etc/cellblock/jail-release)"'
    out = srun(cluster, user, "-N2", "sh", "-c", script).ok()
    variant = cluster.result.build.variant.name
    assert sorted(out.splitlines()) == [f"worker-1 {variant}", f"worker-2 {variant}"]


def test_nothing_of_the_worker_is_in_reach_of_a_path(cluster: LocalCluster, user: str) -> None:
    out = srun(
        cluster, user, "sh", "-c", "ls -d /mnt/jail /run/secrets /usr/lib/cellblock 2>/dev/null; true"
    ).ok()
    assert out == ""


def test_a_job_has_the_users_ids_and_supplementary_group(cluster: LocalCluster, user: str) -> None:
    secret = home(cluster, user) / "for-the-lab"
    secret.write_text("read by the group\n")
    os.chown(secret, 0, 2500)
    secret.chmod(0o640)
    out = srun(cluster, user, "sh", "-c", f"id -nG; cat /home/{user}/for-the-lab").ok()
    assert out.splitlines() == [f"{user} lab", "read by the group"]


def test_sbatch_writes_its_output_in_the_jail(cluster: LocalCluster, user: str) -> None:
    job = sbatch(cluster, user, "hostname; id -un", "-w", "worker-2", "--output=out.%j")
    assert (home(cluster, user) / f"out.{job}").read_text() == f"worker-2\n{user}\n"
    assert (home(cluster, user) / f"out.{job}").stat().st_uid == home(cluster, user).stat().st_uid
    assert not cluster.on("worker-2", "ls", f"/home/{user}").out


def test_an_array_runs_each_of_its_tasks(cluster: LocalCluster, user: str) -> None:
    sbatch(cluster, user, "echo $SLURM_ARRAY_TASK_ID", "--array=1-3", "--output=array.%a")
    found = {path.name: path.read_text() for path in home(cluster, user).glob("array.*")}
    assert found == {"array.1": "1\n", "array.2": "2\n", "array.3": "3\n"}


def test_what_one_node_writes_the_other_reads(cluster: LocalCluster, user: str) -> None:
    srun(cluster, user, "-w", "worker-1", "sh", "-c", "hostname > shared").ok()
    assert srun(cluster, user, "-w", "worker-2", "cat", "shared").ok() == "worker-1\n"
    assert cluster.jail("cat", f"/home/{user}/shared").ok() == "worker-1\n"


def test_tmp_is_the_jobs_own(cluster: LocalCluster, user: str) -> None:
    script = "touch /tmp/mine; srun ls /tmp/mine; srun -n1 ls /tmp/mine"
    job = sbatch(cluster, user, script, "--output=tmp.%j")
    assert (home(cluster, user) / f"tmp.{job}").read_text().splitlines() == ["/tmp/mine", "/tmp/mine"]
    assert srun(cluster, user, "ls", "/tmp/mine").status != 0


def test_a_tasks_epilog_runs_in_the_jail(cluster: LocalCluster, user: str) -> None:
    # Slurm runs it without asking a SPANK plugin; BASH_ENV would let it be any program of the node.
    here = home(cluster, user)
    look = "ls -d /mnt/jail/root /usr/lib/cellblock"
    (here / "epilog.sh").write_text(
        f"#!/bin/sh\n{look} >/home/{user}/own 2>/dev/null; touch /home/{user}/own-ran\n"
    )
    (here / "epilog.sh").chmod(0o755)
    (here / "env.sh").write_text(f"{look} >/home/{user}/seen 2>/dev/null; touch /home/{user}/seen-ran\n")
    srun(cluster, user, f"--task-epilog=/home/{user}/epilog.sh", "true").ok()
    script = f"BASH_ENV=/home/{user}/env.sh srun --task-epilog=/bin/bash true"
    cluster.jail("sh", "-c", script, user=user).ok()
    # Slurm 22.05 looks for the program outside before it runs it inside.
    names = ("seen",) if cluster.status.release == "22.05" else ("own", "seen")
    for name in names:
        cluster.wait_until(f"epilog {name} ran", (here / f"{name}-ran").exists)
        assert (here / name).read_text() == ""


def test_every_task_keeps_its_pmi_socket(cluster: LocalCluster, user: str) -> None:
    script = 'test -S /proc/self/fd/$PMI_FD && echo "$SLURM_PROCID"'
    out = srun(cluster, user, "-N1", "-n6", "--overcommit", "--mpi=pmi2", "sh", "-c", script).ok()
    assert sorted(out.split()) == ["0", "1", "2", "3", "4", "5"]


def test_a_failing_job_says_how(cluster: LocalCluster, user: str) -> None:
    assert srun(cluster, user, "sh", "-c", "exit 7").status == 7
    job = sbatch(cluster, user, "exit 3", "--output=/dev/null")
    shown = cluster.job(job)
    assert (shown["JobState"], shown["ExitCode"]) == ("FAILED", "3:0")


def test_a_cancelled_job_leaves_no_process(cluster: LocalCluster, user: str) -> None:
    wrap = "srun -N2 sleep 600"
    job = (
        cluster.jail("sbatch", "--parsable", "-N2", "-o", "/dev/null", "--wrap", wrap, user=user).ok().strip()
    )
    try:
        cluster.wait_until("it runs on both", lambda: sleepers(cluster) == ["worker-1", "worker-2"])
    finally:
        cluster.jail("scancel", job, user=user).ok()
    cluster.wait_until("its processes are gone", lambda: not sleepers(cluster))
    cluster.wait_until("it is over", lambda: cluster.job(job)["JobState"] == "CANCELLED")


def sleepers(cluster: LocalCluster) -> list[str]:
    nodes = ("worker-1", "worker-2")
    return [node for node in nodes if any("sleep 600" in command for _, command in cluster.processes(node))]


def test_salloc_runs_steps_on_its_nodes(cluster: LocalCluster, user: str) -> None:
    done = cluster.jail("salloc", "-N2", "srun", "hostname", user=user)
    assert sorted(done.ok().splitlines()) == ["worker-1", "worker-2"]


def test_salloc_alone_opens_a_shell_in_the_jail_on_the_first_node(cluster: LocalCluster, user: str) -> None:
    script = "salloc -w worker-2 <<'E'\nhostname; cat /etc/cellblock/jail-release; pwd\nE"
    done = cluster.jail("timeout", "120", "bash", "-c", script, user=user)
    assert done.out.splitlines()[0] == "worker-2", done
    assert "SLURM_RELEASE=" in done.out
    assert f"/home/{user}" in done.out


def test_a_step_starts_when_the_one_that_it_waits_for_ends(cluster: LocalCluster, user: str) -> None:
    """From the login node: Slurm 22.05 by itself would tell only an srun on a worker."""
    go = fresh_path(cluster, user, "first-step")
    script = f"""srun sh -c 'touch {go.name}; sleep 2' & until [ -e {go.name} ]; do sleep 0.1; done
        timeout 120 srun echo the second; wait"""
    done = cluster.jail("salloc", "-w", "worker-1", "-n1", "sh", "-c", script, user=user)
    # It did wait.
    assert "Step created for" in done.err, done
    assert done.out == "the second\n"


def test_srun_pty_gives_a_terminal(cluster: LocalCluster, user: str) -> None:
    out = srun(cluster, user, "--pty", "sh", "-c", "tty; test -t 0 && echo yes", tty=True).ok()
    assert re.search(r"/dev/pts/\d+\s+yes", out)


def test_client_commands_work_inside_a_job(cluster: LocalCluster, user: str) -> None:
    script = (
        'squeue -h -o %A; srun -N2 hostname | sort; scontrol show job "$SLURM_JOB_ID" | grep -o JobState=.*g'
    )
    job = sbatch(cluster, user, script, "-N2", "--output=clients.%j")
    assert (home(cluster, user) / f"clients.{job}").read_text().split()[:3] == [job, "worker-1", "worker-2"]


def test_an_mpi_program_runs_over_two_nodes_from_a_batch_script(
    cluster: LocalCluster, user: str, mpi_program: str
) -> None:
    job = sbatch(cluster, user, f"srun --mpi=pmix {mpi_program}", "-N2", "-n4", "--output=mpi.%j")
    lines = sorted((home(cluster, user) / f"mpi.{job}").read_text().splitlines())
    assert [line.split(" on ")[0] for line in lines] == [f"rank {rank} of 4" for rank in range(4)]
    assert {line.split()[5] for line in lines} == {"worker-1", "worker-2"}
    assert all(line.endswith("sum 6") for line in lines)


def test_a_plan_that_cannot_be_applied_fails_the_job_inside_or_outside(
    cluster: LocalCluster, user: str
) -> None:
    """Never a job outside the jail by accident."""
    plan = cluster.root.parent.parent / "config" / "worker" / "jail.fstab"
    good = plan.read_text()
    plan.write_text(good + "/does/not/exist /srv none bind\n")
    try:
        done = srun(cluster, user, "-w", "worker-1", "sh", "-c", "echo it ran; ls /mnt")
    finally:
        plan.write_text(good)
    assert "it ran" not in done.out
    assert "/does/not/exist" in done.err + done.out
    cluster.on("controller", "scontrol", "update", "NodeName=worker-1", "State=RESUME")
    cluster.wait_until(
        "the node serves again", lambda: srun(cluster, user, "-w", "worker-1", "true").status == 0
    )
    assert done.status != 0


def test_ssh_sessions_are_in_the_jail(cluster: LocalCluster, user: str) -> None:
    key = cluster.status.ssh_key
    folder = home(cluster, user) / ".ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    owner = home(cluster, user).stat()
    for path in (folder, folder / "authorized_keys"):
        os.chown(path, owner.st_uid, owner.st_gid)
    for login in ("root", user):
        out = ssh(
            cluster,
            login,
            "id -un; ls -d /mnt/jail 2>/dev/null; cat /etc/cellblock/jail-release; srun -N2 hostname",
        )
        assert out.splitlines()[0] == login
        assert "/mnt/jail" not in out
        assert "SLURM_RELEASE=" in out
        if login == "root":
            assert "Root in the jail and system users" in out or "Invalid user id" in out
        else:
            assert {"worker-1", "worker-2"} <= set(out.splitlines())


def ssh(cluster: LocalCluster, login: str, command: str) -> str:
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
    argv = ["ssh", "-i", str(cluster.status.ssh_key), "-p", str(cluster.status.ssh_port)]
    argv += [part for option in options for part in ("-o", option)]
    done = subprocess.run(
        [*argv, f"{login}@127.0.0.1", command], capture_output=True, text=True, timeout=180, check=False
    )
    return done.stdout + done.stderr


def test_manual_pages_are_read_in_a_job_and_in_a_login_shell(cluster: LocalCluster, user: str) -> None:
    script = "export MANPAGER=cat; man srun; man ls; apropos -s1 'parallel jobs'; whatis ls"
    for out in (
        srun(cluster, user, "bash", "-lc", script).ok(),
        cluster.jail("bash", "-lc", script, user=user).ok(),
    ):
        assert "srun - Run parallel jobs" in out
        assert "ls - list directory contents" in out
        # Found by man-db's index.
        assert re.search(r"^srun \(1\) +- Run parallel jobs$", out, re.MULTILINE)
    # The index holds times of pages: one of the build would make each build's another.
    script = "accessdb | sed -n 's/^enroot -> .- 1 1 //p'; stat -c '%Y 0' /usr/share/man/man1/enroot.1"
    indexed, page = cluster.jail("sh", "-c", script, user=user).ok().splitlines()
    assert indexed.startswith(f"{page} ")
