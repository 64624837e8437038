# SPDX-License-Identifier: Apache-2.0
"""node-speed: tasks that measure themselves and each other, told by their standard input what to do."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.spank_jail.test_c_units import build, make, tools

__all__ = ["build", "tools"]  # fixtures

TOKEN = "0123456789abcdef0123456789abcdef"


class Tasks:
    """As srun has them: each command goes to all, and each answers it by a line."""

    def __init__(self, programs: list[subprocess.Popen[str]]) -> None:
        self._programs = programs
        self.hosts = [line.split()[-1] for line in self.lines()]

    def lines(self) -> list[str]:
        found = []
        for rank, program in enumerate(self._programs):
            assert program.stdout
            line = program.stdout.readline().strip()
            assert line.startswith(f"{rank} "), line
            found.append(line.split(" ", 1)[1])
        return found

    def say(self, command: str) -> list[str]:
        for program in self._programs:
            assert program.stdin
            program.stdin.write(f"{command}\n")
            program.stdin.flush()
        return self.lines()


@pytest.fixture
def start(build: Path) -> Iterator[Callable[[int], Tasks]]:
    done = make(build, "node")
    assert done.returncode == 0, done.stdout + done.stderr
    with ExitStack() as stack:

        def of(count: int) -> Tasks:
            programs = []
            for rank in range(count):
                program = subprocess.Popen(
                    [build / "node-speed"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={
                        **os.environ,
                        "SLURM_PROCID": str(rank),
                        "SLURMD_NODENAME": f"node-{rank}",
                        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
                    },
                )
                # Their input's end is theirs.
                stack.callback(program.communicate, timeout=30)
                programs.append(program)
            return Tasks(programs)

        yield of


def test_it_needs_no_library(build: Path, start: Callable[[int], Tasks]) -> None:
    """it runs in the jail, whose libraries users may change"""
    said = subprocess.run(["ldd", build / "node-speed"], capture_output=True, text=True)
    assert "not a dynamic executable" in said.stdout + said.stderr


def test_what_one_node_has(start: Callable[[int], Tasks], tmp_path: Path) -> None:
    tasks = start(1)
    for command in ("processor 0.1", "memory 0.1", f"disk 4 {tmp_path}"):
        (answer,) = tasks.say(command)
        assert float(answer) > 0, (command, answer)
    assert list(tmp_path.iterdir()) == []
    assert tasks.say("disk 4 /none/such") == ["! No such file or directory"]
    assert tasks.say("dance") == ["! Protocol error"]


def test_pairs_and_sums(start: Callable[[int], Tasks]) -> None:
    """five tasks: one rests in each round, and one is beyond the last power of two"""
    tasks = start(5)
    # Whoever brings no token is in nobody's way.
    host, _, port = tasks.hosts[4].rpartition(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(b"x" * 48)
        tasks.say(f"peers {TOKEN} {' '.join(tasks.hosts)}")
        answers = tasks.say("pairs 0.2 0-4 1-3")
        assert answers[2] == "-"
        assert answers[0] == answers[4]
        assert answers[1] == answers[3]
        assert all(float(answers[rank]) > 1 for rank in (0, 1, 3, 4))
        assert all(float(answer) > 0 for answer in tasks.say("reduce 20000 3"))
        # What is met once is used again.
        assert tasks.say("pairs 0.1 0-4")[1:4] == ["-"] * 3


def test_a_task_that_is_not_there(start: Callable[[int], Tasks]) -> None:
    tasks = start(2)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        tasks.say(f"peers {TOKEN} {tasks.hosts[0]} {tasks.hosts[1]} {nobody}")
        assert tasks.say("pairs 0.1 0-2") == ["! Connection refused", "-"]
