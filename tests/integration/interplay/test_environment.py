# SPDX-License-Identifier: Apache-2.0
"""Programs around the task, its environment and its folder: docs/slurm-in-the-jail.md says it in words."""

from __future__ import annotations

import pytest

from tests.integration.jobs import home, output, sbatch, script_file, srun
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]


def test_a_task_prolog_runs_in_the_jail(cluster: LocalCluster, user: str) -> None:
    look = "sed -n s/^VARIANT=//p /etc/cellblock/jail-release; ls -d /mnt/jail/root"
    text = f"#!/bin/sh\necho export FROM_PROLOG=yes\necho print seen: $({look} 2>/dev/null)\n"
    prolog = script_file(cluster, user, "prolog.sh", text)
    out = srun(cluster, user, f"--task-prolog={prolog}", "sh", "-c", "echo $FROM_PROLOG").ok()
    assert out.splitlines() == [f"seen: {cluster.result.build.variant.name}", "yes"]


def test_a_task_prolog_of_the_node_is_not_found(cluster: LocalCluster, user: str) -> None:
    prolog = "/usr/lib/cellblock/role-worker"
    cluster.on("worker-1", "test", "-x", prolog).ok()
    done = srun(cluster, user, "-w", "worker-1", f"--task-prolog={prolog}", "echo", "it ran")
    assert "No such file or directory" in done.err
    assert prolog in done.err
    assert (done.status, done.out) == (1, "")


def test_each_task_has_its_program(cluster: LocalCluster, user: str) -> None:
    (home(cluster, user) / "programs").write_text("0 echo zero\n1-2 sh -c 'echo offset-$1' x %o\n")
    out = srun(cluster, user, "-n3", "--overcommit", "--multi-prog", "programs").ok()
    assert sorted(out.split()) == ["offset-0", "offset-1", "zero"]


def test_the_environment_is_what_export_says(cluster: LocalCluster, user: str) -> None:
    def seen(option: str) -> set[str]:
        script = f"MINE=1 OTHER=1 srun {option} /usr/bin/env | grep -E '^(MINE|OTHER|SET)='"
        return set(cluster.jail("sh", "-c", script, user=user).out.split())

    assert seen("--export=ALL") == {"MINE=1", "OTHER=1"}
    assert seen("--export=NONE") == set()
    assert seen("--export=MINE,SET=2") == {"MINE=1", "SET=2"}


def test_a_job_without_environment_gets_the_one_of_a_login_in_the_jail(
    cluster: LocalCluster, user: str
) -> None:
    # slurmd calls `su` on the node for it.
    profile = home(cluster, user) / ".profile"
    look = "$(ls -d /mnt/jail/root /usr/lib/cellblock 2>/dev/null)"
    before = profile.read_text()
    profile.write_text(f'{before}\nexport MINE="of the profile $(id -un){look}"\n')
    try:
        sbatch(cluster, user, 'echo "$HOME $MINE"; command -v srun', "--export=NONE", "-o", "bare.out")
    finally:
        profile.write_text(before)
    assert output(cluster, user, "bare.out") == f"/home/{user} of the profile {user}\n/usr/bin/srun\n"


def test_a_job_starts_in_a_directory_that_only_the_jail_has(cluster: LocalCluster, user: str) -> None:
    cluster.jail("mkdir", f"/home/{user}/deep", user=user).ok()
    assert srun(cluster, user, f"--chdir=/home/{user}/deep", "pwd").ok() == f"/home/{user}/deep\n"
    done = srun(cluster, user, "--chdir=/usr/lib/cellblock", "pwd")
    assert "couldn't chdir to `/usr/lib/cellblock'" in done.err
    assert done.out == "/tmp\n"


def test_x11_forwarding_is_refused_with_its_reason(cluster: LocalCluster, user: str) -> None:
    cluster.install("xauth")
    cookie = "xauth -q add localhost:10 . 00112233445566778899aabbccddeeff 2>/dev/null"
    script = f"export DISPLAY=localhost:10; {cookie}; srun --x11 echo it ran"
    done = cluster.jail("sh", "-c", script, user=user)
    assert done.status != 0
    assert done.out == ""
    assert "X11 forwarding not available" in done.err


def test_more_tasks_than_processors_each_in_the_jail(cluster: LocalCluster, user: str) -> None:
    script = "test -e /etc/cellblock/jail-release && ! test -e /mnt/jail/root && echo $SLURM_PROCID"
    out = srun(cluster, user, "-N1", "-n64", "--overcommit", "sh", "-c", script).ok()
    assert sorted(int(number) for number in out.split()) == list(range(64))


def test_no_generic_resources(cluster: LocalCluster, user: str) -> None:
    assert srun(cluster, user, "--gres=none", "echo", "ran").ok() == "ran\n"
    assert "gres" in srun(cluster, user, "--gres=gpu:1", "true").err
