# SPDX-License-Identifier: Apache-2.0
"""node-supervise: a daemon that fails is started again; what it leaves running is let alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.spank_jail.test_c_units import build, make, tools
from tests.spank_jail.waiting import PATIENCE_S, wait_until

__all__ = ["build", "tools"]  # fixtures


@pytest.fixture(scope="module")
def program(build: Path) -> Path:
    done = make(build, "node")
    assert done.returncode == 0, done.stdout + done.stderr
    return build / "node-supervise"


def run(program: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, cwd=cwd, check=False
    )


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_it_ends_as_its_command_does_when_that_is_done(program: Path, tmp_path: Path) -> None:
    assert run(program, "sh", "-c", "echo done").stdout == "done\n"
    # Twice it fails, then it is done: each end is told.
    script = 'echo x >> runs; [ "$(wc -l < runs)" -gt 2 ] || exit 3'
    done = run(program, "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0
    assert lines(tmp_path / "runs") == ["x", "x", "x"]
    told = r"node-supervise: sh ended with status 3 after \d\.\d s; it is started again in"
    assert len(re.findall(told, done.stderr)) == 2


def test_what_never_runs_is_given_up(program: Path, tmp_path: Path) -> None:
    done = run(program, "--tries=3", "sh", "-c", "echo x >> runs; exit 3", cwd=tmp_path)
    assert done.returncode == 3
    assert lines(tmp_path / "runs") == ["x", "x", "x"]
    assert "with status 3" in done.stderr
    assert "it never ran for long; correct what its messages name" in done.stderr
    assert run(program, "--tries=1", "/no/such/program").returncode == 127


def test_what_ends_by_a_signal_is_not_given_up(program: Path, tmp_path: Path) -> None:
    """a user's request may end it, as soon as it runs"""
    script = "echo x >> runs; [ $(wc -l < runs) = 4 ] || kill -SEGV $$"
    done = run(program, "--tries=2", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0
    assert lines(tmp_path / "runs") == ["x"] * 4
    assert "by signal 11" in done.stderr


def test_what_has_run_is_never_given_up(program: Path, tmp_path: Path) -> None:
    """after it ran for so long once, it may fail at once as often as it likes"""
    script = "echo x >> runs; case $(wc -l < runs) in 1) sleep 0.3; exit 1;; [2-4]) exit 1;; esac"
    done = run(program, "--tries=2", "--stable=200", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 0
    assert len(lines(tmp_path / "runs")) == 5


def test_a_daemon_that_is_killed_runs_again_and_its_jobs_go_on(program: Path, tmp_path: Path) -> None:
    job = 'setsid sh -c "while sleep 0.05; do echo x >> job; done" & echo $! >> jobs'
    script = f"{job}; echo $$ >> daemon; sleep 600"
    with subprocess.Popen([program, "sh", "-c", script], cwd=tmp_path) as process:
        try:
            wait_until(lambda: len(lines(tmp_path / "jobs")) == 1)
            os.kill(int(lines(tmp_path / "daemon")[0]), signal.SIGKILL)
            wait_until(lambda: len(lines(tmp_path / "jobs")) == 2)
            before = len(lines(tmp_path / "job"))
            os.kill(int(lines(tmp_path / "jobs")[1]), signal.SIGKILL)
            wait_until(lambda: len(lines(tmp_path / "job")) > before + 2)
            assert process.poll() is None
        finally:
            process.terminate()
            for job in lines(tmp_path / "jobs"):
                subprocess.run(["kill", "-9", job], check=False, capture_output=True)
    assert process.returncode == 128 + signal.SIGTERM


TRAPS = """
for name in TERM INT HUP USR1 USR2; do trap "echo $name >> got" $name; done
echo ready >> got
while :; do sleep 0.05; done
"""


def test_signals_are_passed_on(program: Path, tmp_path: Path) -> None:
    got = tmp_path / "got"
    # Below nohup(1) it is ignored, and a shell cannot trap what was ignored when it started.
    command = ["env", "--default-signal=HUP", program, "sh", "-c", TRAPS]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        try:
            wait_until(lambda: lines(got) == ["ready"])
            for number, name in enumerate(("HUP", "USR1", "USR2", "INT", "TERM"), 2):
                process.send_signal(getattr(signal, f"SIG{name}"))
                wait_until(lambda number=number: len(lines(got)) == number)
            assert lines(got) == ["ready", "HUP", "USR1", "USR2", "INT", "TERM"]
            # Asked to end, and not started again.
            pid = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
            os.kill(int(pid), signal.SIGKILL)
            assert process.wait(PATIENCE_S) == 128 + signal.SIGKILL
        finally:
            process.kill()
    assert lines(got).count("ready") == 1


def test_the_end_can_be_asked_for_between_two_runs(program: Path, tmp_path: Path) -> None:
    script = "echo x >> runs; exit 1"
    with subprocess.Popen([program, "--tries=100", "sh", "-c", script], cwd=tmp_path) as process:
        # By now it waits for seconds.
        wait_until(lambda: len(lines(tmp_path / "runs")) == 4)
        process.terminate()
        assert process.wait(PATIENCE_S) in (0, 1)
    assert len(lines(tmp_path / "runs")) <= 5


def test_children_of_the_shell_before_it_leave_no_zombies(program: Path, tmp_path: Path) -> None:
    script = 'sleep 0.2 & exec "$0" sleep 600'
    with subprocess.Popen(["sh", "-c", script, program]) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            wait_until(lambda: len(children.read_text().split()) == 2)
            wait_until(lambda: len(children.read_text().split()) == 1)
        finally:
            process.terminate()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: as a user whose processes are counted")
def test_a_process_is_asked_for_until_there_is_one(program: Path, tmp_path: Path) -> None:
    # A uid that nobody has, and two processes for it: the program, and one that holds the other's place.
    log = tmp_path / "log"
    limited = ["prlimit", "--nproc=2", "setpriv", "--reuid=640123", "--clear-groups", "--"]
    mounted = ["unshare", "--mount", "sh", "-euc", 'mount --bind "$0" /mnt; cd /; exec "$@"']
    holder = subprocess.Popen([*limited, "sleep", "600"])
    try:
        wait_until(lambda: Path(f"/proc/{holder.pid}/comm").read_text() == "sleep\n")
        with log.open("wb") as stream:
            argv = [*mounted, str(program.parent), *limited, "/mnt/node-supervise", "sh", "-c", "echo ran"]
            process = subprocess.Popen(argv, stdout=stream, stderr=stream)
        try:
            wait_until(lambda: "no process can be started: Resource temporarily" in log.read_text())
            holder.kill()
            holder.wait()
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()
    finally:
        holder.kill()
        holder.wait()
    assert lines(log)[-1] == "ran"


@pytest.mark.parametrize(
    "arguments", [[], ["--tries=0", "true"], ["--stable=x", "true"], ["--nonsense", "true"]]
)
def test_wrong_usage_is_said(program: Path, arguments: list[str]) -> None:
    done = run(program, *arguments)
    assert done.returncode == 2
    assert "see node-supervise --help" in done.stderr
