# SPDX-License-Identifier: Apache-2.0
"""Processes are found by what the kernel shows of them without a lock (processes.sh in the images)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cellblock.paths import PROJECT

LIBRARY = PROJECT / "images/slurm/files/usr/lib/cellblock/processes.sh"
# What a process is called has 15 characters.
NAME = f"found{os.getpid()}"


@contextmanager
def running(*command: str) -> Iterator[int]:
    """The number of a process that has said that it runs."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdin
        assert started.stdout
        started.stdin.write(b"line\n")
        started.stdin.flush()
        assert started.stdout.readline() == b"line\n"
        yield started.pid
        started.stdin.close()


def found(line: str) -> set[int]:
    said = subprocess.run(
        ["dash", "-euc", f". {LIBRARY}; {line}"], capture_output=True, text=True, check=True
    )
    return {int(each) for each in said.stdout.split()}


@pytest.mark.skipif(os.geteuid() != 0, reason="PID namespaces need root")
def test_processes_of_a_name(tmp_path: Path) -> None:
    program, other = tmp_path / NAME, tmp_path / f"{NAME}x"
    for each in (program, other):
        shutil.copy("/usr/bin/cat", each)
    within = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    with ExitStack() as stack:
        one = stack.enter_context(running(str(program)))
        longer = stack.enter_context(running(str(other)))
        below = stack.enter_context(running(*within, str(program)))
        (inner,) = map(int, Path(f"/proc/{below}/task/{below}/children").read_text().split())
        # The command line is no name.
        stack.enter_context(running("bash", "-c", 'exec -a "$0" cat', str(program)))
        assert found(f"pids_of {NAME}") == {one}
        assert found(f"all_named '{NAME}|none'") == {one, inner}
        assert found(f"all_named '{NAME}.*'") == {one, inner, longer}


def test_leaders_of_sessions() -> None:
    with running("cat") as member, running("setsid", "cat") as leader:
        assert member not in found("session_leaders")
        assert leader in found("session_leaders")
