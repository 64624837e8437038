"""What else Slurm does to a job, with the jail: docs/slurm-in-the-jail.md says it in words."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from cellblock.cluster import host
from tests.integration.conftest import LocalCluster
from tests.integration.jobs import home, sbatch, srun, submit

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]


def output(cluster: LocalCluster, user: str, name: str) -> str:
    path = home(cluster, user) / name
    return path.read_text() if path.exists() else ""


def script_file(cluster: LocalCluster, user: str, name: str, text: str) -> str:
    """A program in the user's home; returns its path in the jail."""
    path = home(cluster, user) / name
    path.write_text(text)
    path.chmod(0o755)
    return f"/home/{user}/{name}"


@dataclass(frozen=True)
class SlowJobs:
    """Jobs that take a minute of Slurm's own time, submitted before the first test."""

    limited: str
    het: str


@pytest.fixture(scope="session", autouse=True)
def slow_jobs(cluster: LocalCluster, user: str) -> SlowJobs:
    # Slurm looks at time limits twice a minute, and starts heterogeneous jobs as often; in a partition of
    # its own, for such a job holds up those that come after it.
    # PriorityTier=0: it is not to hold up those of the other partition, either.
    partition = ("PartitionName=slow", "Nodes=worker-1,worker-2", "PriorityTier=0", "PreemptMode=off")
    cluster.on("controller", "scontrol", "create", *partition).ok()
    script = "trap 'echo the signal came' USR1; while :; do sleep 1; done"
    options = ("-w", "worker-1", "-t", "1", "--signal=B:USR1@60", "-o", "limited.out")
    limited = submit(cluster, user, script, *options)
    script = "\n#SBATCH -n1 -w worker-1\n#SBATCH hetjob\n#SBATCH -n1 -w worker-2 -p slow\n"
    steps = "srun --het-group=0,1 -l hostname | sort; srun --het-group=1 cat /etc/cellblock/jail-release"
    het = submit(cluster, user, f"#!/bin/bash{script}{steps}", "-p", "slow", "-o", "het.out")
    return SlowJobs(limited, het)


# -- programs around the task ------------------------------------------------------------------


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


# -- files -------------------------------------------------------------------------------------


def test_sbcast_brings_a_file_to_where_jobs_see_it(cluster: LocalCluster, user: str) -> None:
    script = "cp /usr/bin/uname tool; sbcast -f tool tool; srun /run/bcast/tool -n; srun rm /run/bcast/tool"
    done = cluster.jail("salloc", "-N2", "sh", "-c", script, user=user)
    assert sorted(done.ok().split()) == ["worker-1", "worker-2"]


def test_srun_brings_its_program(cluster: LocalCluster, user: str) -> None:
    cluster.jail("cp", "/usr/bin/uname", "brought", user=user).ok()
    out = srun(cluster, user, "-N2", "--bcast", "./brought", "-n").ok()
    assert sorted(out.split()) == ["worker-1", "worker-2"]
    srun(cluster, user, "-N2", "sh", "-c", "rm -rf /run/bcast/*").ok()


def test_sbcast_to_elsewhere_lands_outside_the_jail(cluster: LocalCluster, user: str) -> None:
    """slurmd serves it without asking a SPANK plugin."""
    script = "echo text > note; sbcast -f note /tmp/note; srun ls /tmp/note"
    done = cluster.jail("salloc", "-w", "worker-1", "sh", "-c", script, user=user)
    assert "cannot access '/tmp/note'" in done.err
    assert cluster.on("worker-1", "cat", "/tmp/note").ok() == "text\n"
    cluster.on("worker-1", "rm", "/tmp/note").ok()


@pytest.mark.parametrize("path", ["/usr/bin/evil", "/usr/lib/evil.so", "/etc/evil", "/root/evil", "/evil"])
def test_sbcast_by_root_cannot_change_the_system_of_the_worker(cluster: LocalCluster, path: str) -> None:
    script = f"echo text > /root/note; sbcast -f /root/note {path}"
    done = cluster.jail("salloc", "-w", "worker-1", "sh", "-c", script)
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


# -- steps and terminals -----------------------------------------------------------------------


def test_more_tasks_than_processors_each_in_the_jail(cluster: LocalCluster, user: str) -> None:
    script = "test -e /etc/cellblock/jail-release && ! test -e /mnt/jail/root && echo $SLURM_PROCID"
    out = srun(cluster, user, "-N1", "-n64", "--overcommit", "sh", "-c", script).ok()
    assert sorted(int(number) for number in out.split()) == list(range(64))


def test_no_generic_resources(cluster: LocalCluster, user: str) -> None:
    assert srun(cluster, user, "--gres=none", "echo", "ran").ok() == "ran\n"
    assert "gres" in srun(cluster, user, "--gres=gpu:1", "true").err


def test_sattach_shows_a_running_step(cluster: LocalCluster, user: str) -> None:
    wait = f"until [ -e /home/{user}/go ]; do sleep 0.1; done; echo from the step; sleep 1"
    job = submit(cluster, user, f"srun sh -c '{wait}'", "-o", "/dev/null")
    steps = ("squeue", "--steps", "-h", "-o%i")
    cluster.wait_until("the step runs", lambda: f"{job}.0" in cluster.jail(*steps).out.split())
    script = f"(sleep 2; touch go) & timeout 20 sattach {job}.0"
    done = cluster.jail("sh", "-c", script, user=user)
    if cluster.status.release == "22.05":
        # This release's sattach asks slurm.conf for a node's address, and these register themselves.
        assert "can't find address for host worker-" in done.err
    else:
        assert done.ok() == "from the step\n"


@contextmanager
def terminal(cluster: LocalCluster, rows: int, columns: int, command: str) -> Iterator[tuple[int, int]]:
    """`command` over ssh in a terminal of that size: (descriptor of the terminal, process)."""
    status = cluster.status
    options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
    argv = ["ssh", "-tt", "-i", str(status.ssh_key), "-p", str(status.ssh_port)]
    argv += [part for option in options for part in ("-o", option)]
    process, master = pty.fork()
    if process == 0:
        resize(0, rows, columns)
        os.execvp("ssh", [*argv, "root@127.0.0.1", command])
    try:
        yield master, process
    finally:
        os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)
        os.close(master)


def resize(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def say(master: int, text: str, answer: str) -> str:
    """Type `text`, and read until `answer`, a regular expression, is found."""
    os.write(master, text.encode())
    seen, deadline = "", time.monotonic() + 20
    while not re.search(answer, seen):
        assert time.monotonic() < deadline, f"no {answer!r} in {seen!r}"
        if select.select([master], [], [], 0.2)[0]:
            seen += os.read(master, 4096).decode(errors="replace")
    return seen


def test_a_terminal_follows_its_window_and_ctrl_c(cluster: LocalCluster) -> None:
    with terminal(cluster, 30, 100, "srun --pty bash --norc") as (master, process):
        # The commands are echoed as they are typed: no answer is found in them.
        say(master, "echo size $(stty size)\n", r"size 30 100")
        resize(master, 41, 123)
        os.kill(process, signal.SIGWINCH)
        time.sleep(0.5)
        say(master, "echo size $(stty size)\n", r"size 41 123")
        say(master, "echo asleep$((1)); sleep 60\n", r"asleep1")
        time.sleep(0.3)
        say(master, "\x03", r"\^C")
        say(master, "echo status $?\n", r"status 130")


@pytest.fixture
def visitor(cluster: LocalCluster) -> str:
    """A user of whom no other test leaves a job running."""
    cluster.jail("sh", "-c", "id vera || useradd --create-home --shell /bin/bash vera").ok()
    return "vera"


@pytest.fixture
def own_key(cluster: LocalCluster, visitor: str) -> str:
    """The visitor's own ssh key, made and accepted in the jail; returns how to call ssh with it."""
    script = (
        "mkdir -p -m 700 .ssh; test -e .ssh/id_own || ssh-keygen -q -t ed25519 -N '' -f .ssh/id_own;"
        "cat .ssh/id_own.pub >> .ssh/authorized_keys"
    )
    cluster.jail("sh", "-c", script, user=visitor).ok()
    options = "-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    return f"ssh -i .ssh/id_own {options}"


def test_ssh_to_a_worker_is_for_those_with_a_job_there_and_in_the_jail(
    cluster: LocalCluster, visitor: str, own_key: str
) -> None:
    look = "hostname; id -un; pwd; ls -d /mnt/jail/root /usr/lib/cellblock; cat /etc/cellblock/jail-release"
    # A session is refused until the job's extern step is up, a moment after salloc has its allocation.
    wait = f"until {own_key} worker-1 true 2>/dev/null; do sleep 0.5; done"
    script = f"{wait}; {own_key} worker-1 '{look}'; {own_key} worker-2 'echo it ran'; echo status $?"
    done = cluster.jail("salloc", "-Q", "-w", "worker-1", "bash", "-c", script, user=visitor)
    lines = done.out.splitlines()
    assert lines[:3] == ["worker-1", visitor, f"/home/{visitor}"], done
    assert "cannot access '/mnt/jail/root'" in done.err
    assert "cannot access '/usr/lib/cellblock'" in done.err
    assert f"VARIANT={cluster.result.build.variant.name}" in lines
    assert lines[-1] == "status 255"
    assert "it ran" not in done.out
    assert "no active jobs on this node" in done.err


def test_root_in_the_jail_does_not_log_in_to_a_worker(cluster: LocalCluster) -> None:
    script = "ssh -o BatchMode=yes -o StrictHostKeyChecking=no worker-1 echo it ran"
    done = cluster.jail("sh", "-c", script)
    assert done.status == 255
    assert "Permission denied" in done.err


# -- jobs that end early, or run twice ---------------------------------------------------------


TWICE = """
run=${SLURM_RESTART_COUNT:-0}
echo "$SLURM_JOB_ID $run $(ls /tmp | grep -c mark) $(ls -d /mnt/jail/root 2>/dev/null)" >> NAME
touch /tmp/mark
[ "$run" = 1 ] || sleep 60
"""


def test_a_requeued_job_runs_again_in_a_fresh_jail(cluster: LocalCluster, user: str) -> None:
    options = ("--requeue", "-w", "worker-2", "-o", "/dev/null")
    job = submit(cluster, user, TWICE.replace("NAME", "requeued"), *options)
    cluster.wait_until("the first run", lambda: bool(output(cluster, user, "requeued")))
    cluster.jail("scontrol", "requeue", job, user=user).ok()
    assert second_run(cluster, user, job, "requeued") == [f"{job} 0 0", f"{job} 1 0"]


def second_run(cluster: LocalCluster, user: str, job: str, name: str) -> list[str]:
    """Have a requeued job start now; what its runs wrote."""
    cluster.wait_until("it is pending", lambda: cluster.job(job)["JobState"] == "PENDING")
    # Slurm waits two minutes before the second run, for slurmd takes times in seconds: a run that starts
    # in the second in which the first was killed is killed, too.
    time.sleep(2)
    cluster.jail("scontrol", "update", f"JobId={job}", "StartTime=now", user=user).ok()
    going_on = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")
    cluster.wait_until("it is over", lambda: cluster.job(job)["JobState"] not in going_on)
    assert cluster.job(job)["JobState"] == "COMPLETED"
    return [line.strip() for line in output(cluster, user, name).splitlines()]


@pytest.fixture
def urgent(cluster: LocalCluster) -> Iterator[str]:
    """A partition whose jobs displace those of the other."""
    options = ("PartitionName=urgent", "Nodes=worker-1,worker-2", "PriorityTier=10", "State=UP")
    cluster.on("controller", "scontrol", "create", *options).ok()
    yield "urgent"
    cluster.on("controller", "scontrol", "delete", "PartitionName=urgent").ok()


def test_a_preempted_job_runs_again_in_a_fresh_jail(cluster: LocalCluster, user: str, urgent: str) -> None:
    options = ("--requeue", "--exclusive", "-w", "worker-2", "-o", "/dev/null")
    job = submit(cluster, user, TWICE.replace("NAME", "preempted"), *options)
    cluster.wait_until("the first run", lambda: bool(output(cluster, user, "preempted")))
    whole_node = ("-p", urgent, "-w", "worker-2", "--exclusive")
    assert srun(cluster, user, *whole_node, "sh", "-c", "ls /tmp | grep -c mark").out == "0\n"
    assert second_run(cluster, user, job, "preempted") == [f"{job} 0 0", f"{job} 1 0"]


def test_one_element_of_an_array_is_cancelled(cluster: LocalCluster, user: str) -> None:
    script = f"until [ -e /home/{user}/go-on ]; do sleep 0.1; done; echo done"
    job = submit(cluster, user, script, "--array=1-2", "--output=cancel.%a", "-w", "worker-2")

    def state(element: int) -> str:
        return cluster.jail("squeue", "-h", "-j", f"{job}_{element}", "-o%T").out.strip()

    cluster.wait_until("both run", lambda: state(1) == state(2) == "RUNNING")
    cluster.jail("scancel", f"{job}_1", user=user).ok()
    cluster.wait_until("the first is over", lambda: state(1) == "")
    assert state(2) == "RUNNING"
    (home(cluster, user) / "go-on").touch()
    cluster.wait_until("the second is over", lambda: state(2) == "")
    assert "CANCELLED" in output(cluster, user, "cancel.1")
    assert output(cluster, user, "cancel.2") == "done\n"


def test_limits_are_those_that_the_worker_was_given(cluster: LocalCluster, user: str) -> None:
    """PropagateResourceLimits=NONE: not those of the shell that submitted."""
    limits = {limit.name: limit.value for limit in host.container_limits()}
    memlock = limits["memlock"]
    expected = [str(limits["nofile"]), "unlimited" if memlock == -1 else str(memlock // 1024)]
    script = "ulimit -n 256; ulimit -l 0; srun bash -c 'ulimit -n; ulimit -l'"
    assert cluster.jail("bash", "-c", script, user=user).ok().split() == expected


def test_a_heterogeneous_job_runs_its_steps_in_the_jail(
    cluster: LocalCluster, user: str, slow_jobs: SlowJobs
) -> None:
    cluster.wait_until("it is over", lambda: "SLURM_RELEASE" in output(cluster, user, "het.out"))
    assert output(cluster, user, "het.out").splitlines()[:2] == ["0: worker-1", "1: worker-2"]


def test_a_job_gets_its_signal_and_ends_at_its_limit(
    cluster: LocalCluster, user: str, slow_jobs: SlowJobs
) -> None:
    # A minute and a half after its start at the latest, and much of that has passed.
    cluster.wait_until("its end", lambda: cluster.job(slow_jobs.limited)["JobState"] == "TIMEOUT")
    text = output(cluster, user, "limited.out")
    assert text.startswith("the signal came\n")
    assert "DUE TO TIME LIMIT" in text
    processes = cluster.processes
    cluster.wait_until(
        "nothing of it runs", lambda: not any(command == "sleep 1" for _, command in processes("worker-1"))
    )
