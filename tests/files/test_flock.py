# SPDX-License-Identifier: Apache-2.0
"""Locks between processes: waiting, sharing, and the end of a holder."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.files.flock import locked
from cellblock.process import Interrupted

HOLDER = """
import sys, time
from pathlib import Path
from cellblock.files.flock import locked
with locked(Path(sys.argv[1]), shared=sys.argv[2] == "shared"):
    print("held", flush=True)
    time.sleep(300)
"""


def hold(path: Path, how: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", HOLDER, str(path), how]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_who_waits_says_so_once_and_goes_on_when_the_holder_is_killed(tmp_path: Path) -> None:
    holder = hold(tmp_path / "folder" / "lock", "exclusive")
    said: list[str] = []

    def waiting() -> None:
        said.append("waiting")
        end(holder)

    with locked(tmp_path / "folder" / "lock", waiting=waiting):
        assert said == ["waiting"]


def test_shared_holders_do_not_wait_for_each_other(tmp_path: Path) -> None:
    holder = hold(tmp_path / "lock", "shared")
    try:
        with locked(tmp_path / "lock", shared=True, waiting=lambda: pytest.fail("waited")):
            pass
    finally:
        end(holder)


def test_waiting_ends_when_the_work_is_stopped(tmp_path: Path) -> None:
    holder = hold(tmp_path / "lock", "shared")
    stopped = threading.Event()
    try:
        with (
            pytest.raises(Interrupted, match="lock"),
            locked(tmp_path / "lock", waiting=stopped.set, stopped=stopped),
        ):
            pytest.fail("two hold it")
    finally:
        end(holder)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(CellblockError, match="cannot be opened") as raised,
        locked(tmp_path / "file" / "lock"),
    ):
        pass
    assert "CELLBLOCK_CACHE" in raised.value.hint
