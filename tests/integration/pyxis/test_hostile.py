# SPDX-License-Identifier: Apache-2.0
"""What users, and root in the jail, do to what makes their containers.

docs/decisions/pyxis-hostile-users.md has the rest of what was tried.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.jobs import ended, fresh_path, submit
from tests.integration.pyxis.conftest import IMAGE, Containers

pytestmark = pytest.mark.integration

# As libc-less as can be: the jail has no compiler, and any library of its own.
_LOOK = r"""
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Each process by its number, seen in /proc or not: what can be taken of it; with an argument, hidden ones
 * are stopped. */
int main(int argc, char **argv)
{
	(void)argv;
	for (int pid = 2; pid < getpid() + 300; pid++) {
		char path[64], program[PATH_MAX] = "";
		int process = (int)syscall(SYS_pidfd_open, pid, 0);
		snprintf(path, sizeof(path), "/proc/%d/exe", pid);
		if (process < 0 || pid == getpid() || pid == getppid())
			continue;
		if (argc > 1 && access(path, F_OK) && !kill(pid, 0) && !kill(pid, SIGSTOP))
			printf("stopped %d\n", pid);
		for (int fd = 0; argc == 1 && fd < 64; fd++)
			if (syscall(SYS_pidfd_getfd, process, fd, 0) >= 0) {
				if (readlink(path, program, sizeof(program) - 1) > 0)
					printf("took %s\n", program);
				break;
			}
		close(process);
	}
	return 0;
}
"""


@pytest.fixture(scope="module")
def look(containers: Containers, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program above, in the jail."""
    folder = tmp_path_factory.mktemp("look")
    (folder / "look.c").write_text(_LOOK)
    program = containers.cluster.root / "opt/pyxis-look"
    subprocess.run(["gcc", "-O1", "-static", "-o", program, folder / "look.c"], check=True)
    return "/opt/pyxis-look"


def test_root_of_the_jail_takes_nothing_from_forks_of_slurmstepd(containers: Containers, look: str) -> None:
    """A keeper is one for as long as the step lasts. It had slurmstepd's descriptors, memory and program."""
    script = f"""
        srun --overlap -n1 --container-image={IMAGE} --container-save=/tmp/x.sqsh sleep 3 & sleep 1.5
        srun --overlap -n1 {look}; wait"""
    done = containers.cluster.client(
        "salloc", "--quiet", "-n2", "-wworker-1", "sh", "-euc", script, user="root"
    )
    assert "exported container" in done.err  # it was there
    taken = [line for line in done.out.splitlines() if line.startswith("took ")]
    assert any("enroot-hold" in line for line in taken), done  # and the program looks
    assert not [line for line in taken if "slurmstepd" in line]


def test_a_stopped_keeper_ends_with_its_step(containers: Containers, look: str) -> None:
    """Proctrack/linuxproc does not find it; slurmstepd waited for it for ever, and the node for that."""
    user = containers.user
    runs, stopped = (fresh_path(containers.cluster, user, f"keeper-{what}") for what in ("runs", "stopped"))
    task = f"echo > /mnt/{runs.name}; while [ ! -e /mnt/{stopped.name} ]; do sleep 0.1; done"
    options = f"--container-image={IMAGE} --container-save=/tmp/x.sqsh --container-mounts=/home/{user}:/mnt"
    script = f"""
        srun --overlap -n1 {options} sh -c '{task}' &
        while [ ! -e /home/{user}/{runs.name} ]; do sleep 0.1; done
        srun --overlap -n1 {look} stop; touch /home/{user}/{stopped.name}
        sleep 2; scancel --signal=KILL "$SLURM_JOB_ID.0"
        wait || true; echo over"""
    done = containers.script(script, "-n2", "-wworker-1")
    assert "stopped " in done.out
    assert done.out.endswith("over\n")
    containers.cluster.wait_until("nothing is left", lambda: containers.leftovers() == [])


def test_users_do_not_write_the_nodes_log(containers: Containers) -> None:
    cluster = containers.cluster
    done = containers.run("-wworker-1", "--container-image=mine\nFAKE: a line", "true")
    assert "pyxis: importing docker image: mine?FAKE: a line\n" in done.err
    log = cluster.on("worker-1", "cat", "/var/log/slurm/slurmd.log").ok()
    assert "mine?FAKE" in log  # the error, on a line
    assert "\nFAKE" not in log
    assert "printing enroot log file" not in log


_ENROOT = """#!/bin/bash
if [ "$1 $2 $3" = "remove --force --match" ]; then
    setsid sleep 4242 < /dev/null > /dev/null 2>&1 &
    printf "%s\\n" /proc/[0-9]* > /opt/pyxis-epilog-sees.new
    mv /opt/pyxis-epilog-sees.new /opt/pyxis-epilog-sees
fi
exec /usr/bin/enroot "$@"
"""


def test_what_the_epilog_runs_sees_and_leaves_nothing(containers: Containers) -> None:
    """Root of the jail puts his own program in the place of enroot: it runs in no job."""
    cluster = containers.cluster
    rogue, sees = cluster.root / "usr/local/sbin/enroot", cluster.root / "opt/pyxis-epilog-sees"
    _install(rogue, _ENROOT)
    try:
        options = (f"--container-image={IMAGE}", "--container-save=/tmp/x.sqsh", "-wworker-1")
        containers.run(*options, "true", user="root").ok()
        cluster.wait_until("the epilog runs it", sees.exists)
        assert len(sees.read_text().split()) <= 3  # itself
        cluster.wait_until(
            "its daemon ends with it",
            lambda: not [line for _, line in cluster.processes("worker-1") if line == "sleep 4242"],
        )
    finally:
        rogue.unlink()
        sees.unlink(missing_ok=True)


def test_no_job_of_the_user_stops_the_epilog(containers: Containers) -> None:
    """What the epilog runs was in sight of the user's other jobs: stopped, it held the node for ever."""
    cluster, user = containers.cluster, containers.user
    stop = """until [ -e stopped ] || [ -e over ]; do
        for process in /proc/[0-9]*; do
            if grep -qa -e --match "$process/cmdline" 2>/dev/null && [ "${process#/proc/}" != $$ ] &&
                grep -qax enroot "$process/comm" 2>/dev/null; then
                kill -STOP "${process#/proc/}" && touch stopped
            fi
        done; done"""
    many = """srun --container-image=IMAGE --container-name=$SLURM_JOB_ID.x true
        mkdir $HOME/.local/share/enroot/pyxis_$SLURM_JOB_ID.x/many
        cd $HOME/.local/share/enroot/pyxis_$SLURM_JOB_ID.x/many; seq 60000 | xargs touch
        echo "$SLURM_JOB_ID.0 temporary x" > ../.lock
        srun --container-image=IMAGE --container-save=/tmp/x.sqsh true""".replace("IMAGE", IMAGE)
    options = ("-n1", "-wworker-1", f"-D/home/{user}", "-o/dev/null")
    stopped, over = (fresh_path(cluster, user, name) for name in ("stopped", "over"))
    stopper = submit(cluster, user, stop, *options)
    cluster.wait_until("it looks", lambda: cluster.job(stopper)["JobState"] == "RUNNING")
    victim = ended(cluster, submit(cluster, user, many, *options))
    try:
        done = ("squeue", "--noheader", "--states=COMPLETING", f"--jobs={victim}")
        cluster.wait_until(
            "the epilog is over, or stopped",
            lambda: stopped.exists() or not cluster.on("controller", *done).out,
        )
        over.touch()
        ended(cluster, stopper)
        assert not stopped.exists()
        assert containers.leftovers() == []
    finally:
        stopped.unlink(missing_ok=True)
        over.unlink(missing_ok=True)
        cluster.jail("enroot", "remove", "--force", f"pyxis_{victim}.x", user=user)


def _install(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
