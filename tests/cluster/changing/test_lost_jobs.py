# SPDX-License-Identifier: Apache-2.0
"""Jobs of a worker's earlier container are queued again, and few nodes ask for all jobs to find them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cellblock.paths import PROJECT

FOLDER = PROJECT / "images/worker/files/usr/lib/cellblock"
# A busy machine may take so long.
_BUSY_S = 60
_SCONTROL = """\
#!/bin/sh
echo "scontrol $*" >>"$HOME/asked"
case $* in
"show node"*) cat "$HOME/node" ;;
"show config") echo "Prolog = (null)" ;;
esac
"""
_SQUEUE = """\
#!/bin/sh
echo squeue >>"$HOME/asked"
cat "$HOME/jobs"
"""


@contextmanager
def looking(folder: Path, state: str, patience_s: int, *, before_slurmd: bool = True) -> Iterator[Path]:
    """The program, a slurmd that just began, and commands of Slurm's that show files `node` and `jobs`."""
    folder.mkdir()
    for name, text in (("scontrol", _SCONTROL), ("squeue", _SQUEUE)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "node").write_text(f"NodeName=w\n   State={state} ThreadsPerCore=1\n")
    (folder / "jobs").touch()
    (folder / "asked").touch()
    text = (FOLDER / "requeue-lost-jobs").read_text().replace("/usr/lib/cellblock", str(FOLDER))
    program = folder / "program"
    program.write_text(text.replace("PID_FILE=/run/slurmd.pid", f"PID_FILE={folder}/slurmd.pid"))
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    with subprocess.Popen(["sleep", "infinity"]) as slurmd:
        pid = folder / "slurmd.pid"
        if not before_slurmd:
            pid.write_text(f"{slurmd.pid}\n")
        started = subprocess.Popen(["sh", str(program), "w", str(patience_s)], env=environment)
        try:
            # It has found no slurmd by then.
            time.sleep(1.5)
            pid.write_text(f"{slurmd.pid}\n")
            yield folder
        finally:
            started.kill()
            started.wait()
            slurmd.kill()


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_jobs_of_a_container_that_is_gone_are_queued_again_before_the_later_look(tmp_path: Path) -> None:
    with looking(tmp_path / "one", "MIXED*", patience_s=90) as folder:
        now = int((folder / "slurmd.pid").stat().st_mtime)
        # The first began before this slurmd. The second may be this slurmd's, and the third surely is.
        jobs = {"11": now, "12": now + 2, "13": now + 6}
        lines = (f"{job} {job} 1 w {begun} N/A None\n" for job, begun in jobs.items())
        (folder / "jobs").write_text("".join(lines))
        while "scontrol requeue 11" not in asked(folder):
            assert time.time() < now + 90, "it was the later look"
            time.sleep(0.2)
        # Others would have followed at once.
        time.sleep(1)
        assert [line for line in asked(folder) if "requeue" in line] == ["scontrol requeue 11"]


def test_no_other_node_asks_for_all_jobs_soon_after_its_start(tmp_path: Path) -> None:
    """of thousands that come at once, and get jobs at once"""
    with (
        looking(tmp_path / "idle", "IDLE+DYNAMIC_NORM", 20) as idle,
        looking(tmp_path / "down", "DOWN*+DYNAMIC_NORM", 20) as down,
        looking(tmp_path / "demand", "ALLOCATED+CLOUD+POWERING_UP", 20) as demand,
        looking(tmp_path / "again", "MIXED", 20, before_slurmd=False) as again,
    ):
        for folder in (idle, down, demand):
            deadline = time.monotonic() + _BUSY_S
            while not asked(folder):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            (folder / "node").write_text("NodeName=w\n   State=MIXED\n")
        while time.time() < (idle / "slurmd.pid").stat().st_mtime + 18:
            assert [one.name for one in (idle, down, demand, again) if "squeue" in asked(one)] == []
            time.sleep(0.5)
        # A job may have been sent to the container before, between this slurmd's start and its registration.
        deadline = time.monotonic() + _BUSY_S
        while not all("squeue" in asked(folder) for folder in (idle, again)):
            assert time.monotonic() < deadline
            time.sleep(0.5)
        time.sleep(6)
        assert [one.name for one in (down, demand) if "squeue" in asked(one)] == []
