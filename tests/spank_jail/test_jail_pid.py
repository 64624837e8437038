# SPDX-License-Identifier: Apache-2.0
"""jail-enter at level pid: CMD in a PID namespace, and a process outside that stands for it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spank_jail.test_c_units import build, make, tools

__all__ = ["build", "tools"]

Start = Callable[[str], "subprocess.Popen[str]"]

PROGRAMS = "".join(f"{p} {p} none rbind,ro,nofail\n" for p in ("/usr", "/bin", "/lib", "/lib64"))


@pytest.fixture
def init(build: Path, tmp_path: Path) -> Path:
    made = make(build, "init")
    assert made.returncode == 0, made.stderr
    return shutil.copy(build / "jail-init", tmp_path / "jail-init")


@pytest.fixture
def start(build: Path, init: Path, tmp_path: Path) -> Start:
    """Starts a shell script in a jail that the node's programs stand in for a distribution in."""
    if os.geteuid():
        pytest.skip("needs root: it mounts")
    made = make(build, "jail-enter")
    assert made.returncode == 0, made.stderr
    root, plan = tmp_path / "root", tmp_path / "plan"
    for folder in ("etc", "bin", "usr", "lib", "lib64", "proc", "dev"):
        (root / folder).mkdir(parents=True)
    plan.write_text(f"proc /proc proc hidepid=ptraceable\n/dev /dev none rbind\n{PROGRAMS}")
    argv = [str(build / "jail-enter"), "--root", str(root), "--plan", str(plan), "--level", "pid"]
    argv += ["--init", str(init), "--", "sh", "-c"]

    def popen(script: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*argv, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return popen


def test_it_sees_itself_alone(start: Start) -> None:
    out, err = start("echo /proc/[0-9]*; kill -9 -1; kill -9 1; echo $$ $PPID").communicate()
    numbers = out.splitlines()[-1].split()
    assert int(numbers[0]) < 10, err
    assert numbers[1] == "0"
    assert out.splitlines()[0] in (f"/proc/1 /proc/{numbers[0]}", f"/proc/{numbers[0]}")


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 7", 7), ("kill -TERM $$", -signal.SIGTERM), ("kill -KILL $$", -signal.SIGKILL)],
)
def test_it_ends_as_the_command_does(start: Start, script: str, status: int) -> None:
    process = start(script)
    process.communicate()
    assert process.returncode == status


def test_a_signal_is_passed_on(start: Start) -> None:
    process = start("trap 'echo heard; exit 5' USR1; echo ready; while :; do sleep 0.1; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.communicate()[0] == "heard\n"
    assert process.returncode == 5


def test_it_stops_and_continues_with_the_command(start: Start) -> None:
    process = start("kill -STOP $$; echo on; exit 4")
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.communicate()[0] == "on\n"
    assert process.returncode == 4


@pytest.mark.parametrize("end", ["the command ends", "jail-enter is killed"])
def test_nothing_is_left_of_it(start: Start, end: str) -> None:
    number = f"3{os.getpid()}"
    process = start(
        f"setsid sleep {number} >/dev/null 2>&1 & echo ready; {'sleep 60' * (end != 'the command ends')}"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    if end != "the command ends":
        process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while sleeping(number):
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.05)


def sleeping(number: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == f"sleep\0{number}\0".encode():
                return True
        except OSError:  # it has just ended
            continue
    return False


def test_orphans_are_reaped(start: Start) -> None:
    # The shell waits for its own sleep; of the others nobody but the init does.
    script = """
        for i in 1 2 3 4 5; do (sleep 0.05 &); done
        for i in $(seq 600); do
            sleep 0.1
            left=$(cat /proc/[0-9]*/stat 2>/dev/null | grep -c "(sleep)")
            [ "$left" = 0 ] && break
        done
        echo "$left"
    """
    assert start(script).communicate()[0] == "0\n"


def test_the_init_must_be_roots(start: Start, init: Path) -> None:
    init.chmod(0o777)
    process = start("true")
    assert "init of the jail's PID namespaces must be writable by root alone" in process.communicate()[1]
    assert process.returncode == 125
