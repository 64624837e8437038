# SPDX-License-Identifier: Apache-2.0
"""Level pid: the tasks of a step on a node see and signal each other alone, and Slurm notices nothing."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cellblock.cluster.engine.api import podman_environment
from cellblock.cluster.engine.container_specs import container_name
from tests.integration.jobs import home, output, sbatch, script_file, srun, submit
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]

WORKERS = ("worker-1", "worker-2")

# A step that ignores SIGTERM, cancelled before the first test: Slurm waits some seconds (KillWait).
STUBBORN = "srun -N2 --overcommit bash -c 'trap : TERM; while :; do sleep 31; done'"

# The names of all processes in sight, by a shell that starts none for it.
LIST = "for c in /proc/[0-9]*/comm; do read n < $c && echo $n; done 2>/dev/null"


@pytest.fixture(scope="module", autouse=True)
def level_pid(cluster: LocalCluster) -> Iterator[None]:
    """The cluster's workers at level pid, for the tests of this file."""
    path = cluster.root.parent.parent / "config" / "slurm" / "plugstack.conf"
    before = path.read_text()
    publish(cluster, path, re.sub(r"level=\w+", "level=pid", before))
    yield
    publish(cluster, path, before)


def publish(cluster: LocalCluster, path: Path, text: str) -> None:
    path.write_text(text)
    cluster.reconfigure()
    cache = "/var/spool/slurmd/conf-cache/plugstack.conf"
    cluster.wait_until(
        "the workers have it", lambda: all(cluster.on(node, "cat", cache).out == text for node in WORKERS)
    )


@pytest.fixture(scope="module", autouse=True)
def stubborn(cluster: LocalCluster, user: str, level_pid: None) -> None:
    job = submit(cluster, user, STUBBORN, "-N2", "-o", "/dev/null")
    cluster.wait_until("it runs", lambda: all(running(cluster, node, "sleep 31") for node in WORKERS))
    cluster.jail("scancel", job, user=user).ok()


def test_a_task_sees_its_step_and_no_more(cluster: LocalCluster, user: str) -> None:
    out = srun(cluster, user, "-N1", "-n2", "--overcommit", "sh", "-c", f"sleep 1; {LIST}; sleep 1").ok()
    # Whether the other task sleeps at that moment is a matter of chance.
    assert {"sh"} <= set(out.split()) <= {"sh", "sleep"}
    seen = srun(cluster, "root", "sh", "-c", f"{LIST}; true").ok().split()
    # PID 1 is a part of slurmstepd, and named so; it is the only thing of the node.
    assert set(seen) <= {"sh", "slurmstepd"}
    assert "sh" in seen


def test_root_inside_reaches_no_process_of_the_node(cluster: LocalCluster) -> None:
    def ends_by_itself(command: str) -> bool:
        # The last job's steps and epilog.
        return "slurmstepd: [" in command or "epilog" in command

    seen = {command for _, command in cluster.processes("worker-1") if "slurmd" in command}
    before = {command for command in seen if not ends_by_itself(command)}
    assert before
    script = "kill -9 -1; kill -9 1; kill -STOP 1; echo alive; kill -0 1 && echo there"
    out = srun(cluster, "root", "-w", "worker-1", "bash", "-c", script).ok()
    assert out.split() == ["alive", "there"]
    assert before <= {command for _, command in cluster.processes("worker-1")}


def test_nothing_of_init_can_be_read_or_followed(cluster: LocalCluster) -> None:
    script = (
        "for x in exe root cwd fd mem environ; do ls -l /proc/1/$x/ || head -c1 /proc/1/$x; done 2>/dev/null"
    )
    done = srun(
        cluster, "root", "setpriv", "--bounding-set", "-all", "--inh-caps", "-all", "sh", "-c", script
    )
    assert done.out == ""


def test_every_step_has_numbers_of_its_own(cluster: LocalCluster, user: str) -> None:
    script = "echo batch $$; srun -n1 sh -c 'echo one $$'; srun -n1 sh -c 'echo two $$ $SLURM_TASK_PID'"
    # srun says there when a step had to wait for the end of the one before.
    job = sbatch(cluster, user, script, "--output=numbers.%j", "--error=/dev/null")
    lines = (home(cluster, user) / f"numbers.{job}").read_text().splitlines()
    numbers = [[int(word) for word in line.split()[1:]] for line in lines]
    assert all(number < 100 for line in numbers for number in line)
    assert len(set(numbers[2])) == 1  # what Slurm calls the task's PID is what the task calls it


@pytest.mark.parametrize(
    ("script", "status", "told"),
    [
        ("exit 3", 3, "Exited with exit code 3"),
        ("kill -TERM $$", 143, "Terminated"),
        ("kill -KILL $$", 137, "Killed"),
        ("ulimit -c 0; kill -SEGV $$", 139, "Segmentation fault"),
    ],
)
def test_a_task_ends_as_its_program_did(
    cluster: LocalCluster, user: str, script: str, status: int, told: str
) -> None:
    done = srun(cluster, user, "sh", "-c", script)
    assert done.status == status
    assert told in done.err


def test_one_core_file_in_the_jobs_directory(cluster: LocalCluster, user: str) -> None:
    if "|" in Path("/proc/sys/kernel/core_pattern").read_text():
        pytest.skip("this machine pipes core files to a program")
    folder = home(cluster, user) / "crash"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    owner = home(cluster, user).stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    script = "ulimit -c unlimited; kill -SEGV $$"
    done = srun(cluster, user, f"--chdir=/home/{user}/crash", "sh", "-c", script)
    assert "core dumped" in done.err
    assert len(list(folder.iterdir())) == 1


def test_orphans_are_reaped(cluster: LocalCluster, user: str) -> None:
    script = "for i in $(seq 100); do (sleep 0.01 &); done; sleep 1; cat /proc/[0-9]*/comm | sort | uniq -c"
    out = srun(cluster, user, "sh", "-c", script).ok()
    assert "sleep" not in out


def test_what_a_task_leaves_behind_ends_with_the_step(cluster: LocalCluster, user: str) -> None:
    srun(cluster, user, "-w", "worker-1", "sh", "-c", "setsid sleep 4711 >/dev/null 2>&1 & sleep 0.2").ok()
    cluster.wait_until("it is gone", lambda: not running(cluster, "worker-1", "sleep 4711"))


def running(cluster: LocalCluster, node: str, command: str) -> bool:
    """Whether a process has this command line; srun has it at the end of its own before the task is there."""
    own = re.compile(rf"(\S*/)?{re.escape(command)}")
    return any(own.match(found) for _, found in cluster.processes(node))


# Waits by a builtin: proctrack/linuxproc signals each process of a step, and a sleep would end.
SIGNALLED = """\
#!/bin/bash
trap 'echo batch USR1' USR1
srun -n1 bash -c '
    trap "echo task USR1" USR1
    exec 3<> <(:)
    touch ready
    for i in 1 2 3 4 5; do read -t 0.5 -u 3; done
    true'
echo over
"""


@pytest.mark.parametrize(("how", "heard"), [((), ["task USR1"]), (("--batch",), ["batch USR1"])])
def test_a_signal_is_heard_once_and_by_whom_it_is_for(
    cluster: LocalCluster, user: str, how: tuple[str, ...], heard: list[str]
) -> None:
    here = home(cluster, user)
    ready = here / "ready"
    ready.unlink(missing_ok=True)
    submitted = cluster.jail("sbatch", "--parsable", "-o", "signal.%j", user=user, stdin=SIGNALLED)
    job = submitted.ok().strip()
    cluster.wait_until("the task runs", ready.exists)
    cluster.jail("scancel", "-s", "USR1", *how, job, user=user).ok()
    cluster.wait_until("the job is over", lambda: "over" in (here / f"signal.{job}").read_text())
    assert [line for line in (here / f"signal.{job}").read_text().splitlines() if "USR1" in line] == heard


def test_a_suspended_job_stands_still_and_goes_on(cluster: LocalCluster, user: str) -> None:
    out = home(cluster, user) / "ticks"
    out.unlink(missing_ok=True)
    wrap = "for i in $(seq 100); do echo $i >> ticks; sleep 0.1; done"
    job = cluster.jail("sbatch", "--parsable", "-o", "/dev/null", "--wrap", wrap, user=user).ok().strip()
    try:
        cluster.wait_until("it ticks", out.exists)
        cluster.wait_until("Slurm knows", lambda: cluster.job(job)["JobState"] == "RUNNING")
        cluster.on("controller", "scontrol", "suspend", job).ok()
        stopped = out.read_text()
        time.sleep(1)
        assert len(out.read_text()) - len(stopped) <= len("100\n")
        cluster.on("controller", "scontrol", "resume", job).ok()
        cluster.wait_until("it goes on", lambda: len(out.read_text()) > len(stopped) + len("100\n"))
    finally:
        cluster.jail("scancel", job, user=user)


def test_a_cancelled_tasks_epilog_still_runs(cluster: LocalCluster, user: str) -> None:
    # Slurm 22.05 looks for the program on the node: one that both have, and what it reads first.
    script_file(cluster, user, "pid-epilog.sh", f"{{ {LIST}; }} > /home/{user}/epilog-saw\n")
    wrap = f"BASH_ENV=/home/{user}/pid-epilog.sh srun --task-epilog=/bin/bash sleep 600"
    job = submit(cluster, user, wrap, "-o", "/dev/null")
    cluster.wait_until("it runs", lambda: any(running(cluster, node, "sleep 600") for node in WORKERS))
    cluster.jail("scancel", job, user=user).ok()
    cluster.wait_until("the epilog ran", lambda: "bash" in output(cluster, user, "epilog-saw"))
    assert set(output(cluster, user, "epilog-saw").split()) <= {"bash", "sleep"}


class Terminal:
    """A shell in the cluster with a real terminal, typed at and read from."""

    def __init__(self, *command: str) -> None:
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.environ.update(podman_environment())
            os.execvp(command[0], command)
        self.text = ""

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def wait_for(self, pattern: str) -> str:
        """Reads until the pattern is there; returns and forgets what was read up to it."""
        deadline = time.monotonic() + 180
        while not (found := re.search(pattern, self.text)):
            left = deadline - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.text!r}"
            if select.select([self.fd], [], [], left)[0]:
                self.text += os.read(self.fd, 4096).decode(errors="replace")
        before, self.text = self.text[: found.end()], self.text[found.end() :]
        return before


@contextmanager
def terminal(cluster: LocalCluster, user: str, *command: str) -> Iterator[Terminal]:
    login = container_name(cluster.request.name, "login")
    shell = Terminal("podman", "exec", "-it", login, "jail-enter", "--user", user, "--", *command)
    try:
        yield shell
    finally:
        # A shell that is still there would keep its processors.
        cluster.jail("scancel", "--name=terminal", user=user)
        os.close(shell.fd)
        os.waitpid(shell.pid, 0)


def test_a_shell_with_a_terminal_has_job_control(cluster: LocalCluster, user: str) -> None:
    with terminal(
        cluster, user, "srun", "--job-name=terminal", "--pty", "bash", "--norc", "--noediting", "-i"
    ) as shell:
        shell.type("PS1='ready> '\n")
        warnings = shell.wait_for(r"[^']ready> ")
        assert "no job control" not in warnings
        assert "cannot set terminal process group" not in warnings
        shell.type("sleep 100\n")
        time.sleep(0.5)
        shell.type("\x1a")
        shell.wait_for("Stopped")
        shell.type("fg\n")
        shell.wait_for("sleep 100")
        time.sleep(0.5)
        shell.type("\x03")
        shell.wait_for("ready> ")
        shell.type("echo status $?\n")
        shell.wait_for("status 130")
        shell.type("exit\n")


# The last ones: about what is gone after a while.


def test_a_cancelled_step_that_ignores_sigterm_is_killed(cluster: LocalCluster) -> None:
    cluster.wait_until("it is gone", lambda: not any(running(cluster, node, "sleep 31") for node in WORKERS))


def test_a_step_leaves_no_init(cluster: LocalCluster, user: str) -> None:
    for _ in range(5):
        srun(cluster, user, "-w", "worker-1", "true").ok()
    cluster.wait_until("all are gone", lambda: not running(cluster, "worker-1", "slurmstepd: ["))
    inits = [command for _, command in cluster.processes("worker-1") if command == "slurmstepd"]
    assert inits == []
