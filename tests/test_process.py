# SPDX-License-Identifier: Apache-2.0
"""Programs that Cellblock runs: output, failures, and none that is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.process import Interrupted, ProgramFailed, Programs


def gone(pid: int, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_output_comes_line_by_line_and_stdout_whole() -> None:
    lines: list[str] = []
    finished = Programs().run(["sh", "-c", "echo a; echo b; echo e >&2"], on_line=lines.append)
    assert finished.output == "a\nb"
    assert sorted(lines) == ["a", "b", "e"]


def test_a_failure_shows_command_status_and_last_lines() -> None:
    with pytest.raises(ProgramFailed) as raised:
        Programs().run(["sh", "-c", "for i in $(seq 100); do echo line $i; done; exit 7"])
    text = str(raised.value)
    assert "status 7" in text
    assert "| line 100" in text
    assert "| line 50\n" not in text


def test_a_program_that_does_not_exist_fails_with_its_name() -> None:
    with pytest.raises(CellblockError, match="no-such-program"):
        Programs().run(["no-such-program"])


def test_bytes_that_are_no_utf8_do_not_break_the_reader() -> None:
    assert "\ufffd" in Programs().run(["printf", r"\377\n"]).output


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_consumer_that_fails_ends_the_program_and_is_told(stream: str) -> None:
    def gone(line: str) -> None:
        raise BrokenPipeError(line)

    with pytest.raises(BrokenPipeError, match="first"):
        Programs().run(["sh", "-c", f"echo first >&{stream}; exec yes >&{stream}"], on_line=gone)


def test_stop_ends_children_and_grandchildren_and_refuses_more(tmp_path: Path) -> None:
    programs = Programs()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            programs.run(["sh", "-c", f"sleep 100 & echo $! > {tmp_path}/pid; wait"])
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.01)
    programs.stop()
    thread.join(60)
    assert isinstance(failures[0], Interrupted)
    assert gone(int((tmp_path / "pid").read_text()))
    with pytest.raises(Interrupted):
        programs.run(["true"])


def test_a_killed_cellblock_leaves_no_program_running(tmp_path: Path) -> None:
    code = (
        "from cellblock.process import Programs;"
        f"Programs().run(['sh', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 100'])"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.01)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    child = int((tmp_path / "pid").read_text())
    try:
        assert gone(child)
    finally:
        if not gone(child, 0.1):
            os.kill(child, signal.SIGKILL)
