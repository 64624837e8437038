# SPDX-License-Identifier: Apache-2.0
"""Terminals and ssh."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import secrets
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.jobs import fresh_path, submit
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]


def test_sattach_shows_a_running_step(cluster: LocalCluster, user: str) -> None:
    go, begun = fresh_path(cluster, user, "sattach-go"), fresh_path(cluster, user, "sattach-begun")
    wait = f"touch {begun.name}; until [ -e {go.name} ]; do sleep 0.1; done; echo from the step; sleep 1"
    job = submit(cluster, user, f"cd /home/{user} && srun sh -c '{wait}'", "-o", "/dev/null")
    # slurmctld knows a step before its node has begun it.
    cluster.wait_until("the step runs", begun.exists)
    script = f"(sleep 2; touch {go.name}) & timeout 60 sattach {job}.0"
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
    seen, deadline = "", time.monotonic() + 180
    while not re.search(answer, seen):
        assert time.monotonic() < deadline, f"no {answer!r} in {seen!r}"
        if select.select([master], [], [], 0.2)[0]:
            seen += os.read(master, 4096).decode(errors="replace")
    return seen


def test_a_terminal_follows_its_window_and_ctrl_c(cluster: LocalCluster, user: str) -> None:
    # Not su: it would take the terminal away.
    become = f"setpriv --reuid={user} --regid={user} --init-groups"
    with terminal(cluster, 30, 100, f"{become} srun -D/home/{user} --pty bash --norc") as (master, process):
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
    cluster.add_user("vera")
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


def test_what_a_session_leaves_on_a_worker_ends_with_the_users_last_job_there(
    cluster: LocalCluster, visitor: str, own_key: str
) -> None:
    """also where Slurm cannot put the session into the job, for there are no cgroups"""
    number = str(100000 + secrets.randbelow(100000))
    wait = f"until {own_key} worker-1 true 2>/dev/null; do sleep 0.5; done"
    leave = f"setsid sleep {number} >/dev/null 2>&1 </dev/null & sleep 1"
    script = f"{wait}; {own_key} worker-1 '{leave}'; {own_key} worker-1 'pgrep -f -x \"sleep {number}\"'"
    done = cluster.jail("salloc", "-Q", "-w", "worker-1", "bash", "-c", script, user=visitor)
    assert done.out.split(), f"it does not outlive its session: {done}"
    line = f'tr "\\0" " " <$p/cmdline 2>/dev/null | grep "^sleep {number}"'
    look = f"for p in /proc/[0-9]*; do {line}; done; true"
    cluster.wait_until("it is gone", lambda: not cluster.on("worker-1", "sh", "-c", look).out.strip())


def test_root_in_the_jail_does_not_log_in_to_a_worker(cluster: LocalCluster) -> None:
    script = "ssh -o BatchMode=yes -o StrictHostKeyChecking=no worker-1 echo it ran"
    done = cluster.jail("sh", "-c", script)
    assert done.status == 255
    assert "Permission denied" in done.err


def test_a_file_of_keys_without_end_takes_no_memory_of_sshd(cluster: LocalCluster) -> None:
    """sshd reads it as root, for anybody who wants to log in, line by line: this one's line does not end."""
    cluster.add_user("mallory")
    script = (
        "cd; mkdir -p -m 700 .ssh; rm -f .ssh/authorized_keys; truncate -s 1T .ssh/authorized_keys;"
        "chmod 600 .ssh/authorized_keys; test -e own || ssh-keygen -q -t ed25519 -N '' -f own;"
        "ssh -i own -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null login true"
    )
    begun = time.monotonic()
    done = cluster.jail("sh", "-c", script, user="mallory")
    cluster.jail("rm", "-f", "/home/mallory/.ssh/authorized_keys")
    assert "Permission denied" in done.err, done
    # Else it would have read on until LoginGraceTime, 30 s.
    assert time.monotonic() - begun < 20


def test_sessions_have_the_memory_that_sshd_has_not(
    cluster: LocalCluster, visitor: str, own_key: str
) -> None:
    look = "ulimit -S -d; ulimit -H -d"
    assert (
        cluster.jail("sh", "-c", f"{own_key} login '{look}'", user=visitor).out.split() == ["unlimited"] * 2
    )
    wait = f"until {own_key} worker-1 true 2>/dev/null; do sleep 0.5; done"
    script = f"{wait}; {own_key} worker-1 '{look}'"
    done = cluster.jail("salloc", "-Q", "-w", "worker-1", "bash", "-c", script, user=visitor)
    assert done.out.split() == ["unlimited"] * 2, done
