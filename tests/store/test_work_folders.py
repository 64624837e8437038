# SPDX-License-Identifier: Apache-2.0
"""Working folders of builds: whose they are, and when they may be removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cellblock.store.work_folders import WorkFolders

OWNER = """
import sys, time
from pathlib import Path
from cellblock.store.work_folders import WorkFolders
with WorkFolders(Path(sys.argv[1])).new() as folder:
    (folder / "file").touch()
    print(folder, flush=True)
    time.sleep(300)
"""


def owner(folder: Path, *around: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that uses a working folder, and that folder."""
    process = subprocess.Popen(
        [*around, sys.executable, "-c", OWNER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_folder_is_there_for_the_block_and_gone_afterwards(tmp_path: Path) -> None:
    with WorkFolders(tmp_path / "work").new() as folder:
        assert list(folder.iterdir()) == []
        (folder / "file").touch()
    assert list((tmp_path / "work").iterdir()) == []


def test_what_is_in_use_is_not_swept_and_what_a_kill_left_is(tmp_path: Path) -> None:
    folders = WorkFolders(tmp_path)
    process, theirs = owner(tmp_path)
    with folders.new() as ours:
        folders.sweep()
        assert ours.is_dir()
        assert (theirs / "file").is_file()
        end(process)
        folders.sweep()
        assert ours.is_dir()
        assert not theirs.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")
def test_an_owner_in_a_container_is_known_although_its_pid_is_nobodys_here(tmp_path: Path) -> None:
    process, theirs = owner(tmp_path, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    pid = theirs.name.split("-")[0]
    assert int(pid) < 10, "its pid is that of its own namespace"
    WorkFolders(tmp_path).sweep()
    assert (theirs / "file").is_file()
    end(process)
    # The kernel ends the namespace's processes after the one that waits for them.
    deadline = time.monotonic() + 60
    while theirs.exists():
        assert time.monotonic() < deadline
        WorkFolders(tmp_path).sweep()
        time.sleep(0.05)


def test_folders_of_earlier_versions_are_removed(tmp_path: Path) -> None:
    (tmp_path / "1234-5678-1" / "upper").mkdir(parents=True)
    WorkFolders(tmp_path).sweep()
    assert list(tmp_path.iterdir()) == []


def test_nobody_loses_a_folder_to_sweeps_beside_it(tmp_path: Path) -> None:
    stop = threading.Event()

    def sweep() -> None:
        while not stop.is_set():
            WorkFolders(tmp_path).sweep()

    sweepers = [threading.Thread(target=sweep) for _ in range(2)]
    for thread in sweepers:
        thread.start()
    try:
        for _ in range(300):
            with WorkFolders(tmp_path).new() as folder:
                (folder / "file").touch()
                assert (folder / "file").is_file()
    finally:
        stop.set()
        for thread in sweepers:
            thread.join()
    assert list(tmp_path.iterdir()) == []
