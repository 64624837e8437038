# SPDX-License-Identifier: Apache-2.0
"""node-speed: tasks that measure themselves and each other, told by their standard input what to do."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

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


@pytest.fixture
def program() -> Iterator[Callable[[str], Path]]:
    """Makes a program of these lines, in a folder that nobody may enter, too."""
    with TemporaryDirectory(prefix="gpu-speed-") as folder:
        Path(folder).chmod(0o755)

        def of(lines: str) -> Path:
            path = Path(folder, "program")
            path.write_text(f"#!/bin/sh\n{lines}\n")
            path.chmod(0o755)
            return path

        yield of


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        ("echo gpu 0 X multiply 9.5 GFLOP/s; echo gpu 1 X multiply 8 GFLOP/s; echo all-reduce 5", "8.000"),
        ("echo gpu 0: 7 numbers are wrong; exit 1", "? gpu 0: 7 numbers are wrong"),
        ("echo no GPU: no driver; exit 2", "! no GPU: no driver"),
        ("exit 0", "! gpu-speed ended without a word"),
        ("kill -SEGV $$", "! gpu-speed ended without a word"),
        ("sleep 30 & sleep 30", "! PROGRAM did not end within 1 seconds"),
        # As nobody, without the tasks' connections, and without a way to another user.
        (
            "echo $(id -u):$(id -G) $(ls /proc/self/fd | wc -l) $(grep NoNew /proc/self/status); exit 2",
            "! 65534:65534 4 NoNewPrivs: 1",
        ),
    ],
)
def test_gpus_are_measured_by_a_program_of_the_jail(
    start: Callable[[int], Tasks], program: Callable[[str], Path], lines: str, answer: str
) -> None:
    if os.geteuid() and "NoNewPrivs" in answer:
        pytest.skip("root alone becomes nobody")
    path = program(lines)
    started = time.monotonic()
    assert start(1).say(f"gpu 1 {path}") == [answer.replace("PROGRAM", str(path))]
    assert time.monotonic() - started < 10


def test_without_a_program_that_measures_gpus(start: Callable[[int], Tasks]) -> None:
    (answer,) = start(1).say("gpu 1 /none/such")
    assert answer == "! the jail has no /none/such; jail-devel of a CUDA variant does"


def test_pairs_and_sums(start: Callable[[int], Tasks]) -> None:
    """five tasks: one rests in each round, and one is beyond the last power of two"""
    tasks = start(5)
    # Whoever brings no token is in nobody's way, nor who says nothing.
    host, _, port = tasks.hosts[4].rpartition(":")
    with ExitStack() as strangers:
        for said in (b"x" * 48, b"", b"x", *[b""] * 40):
            stranger = strangers.enter_context(socket.create_connection((host, int(port))))
            stranger.sendall(said)
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
