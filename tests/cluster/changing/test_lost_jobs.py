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
PROCESSES = PROJECT / "images/slurm/files/usr/lib/cellblock/processes.sh"
# A busy machine may take so long.
_BUSY_S = 60
_SCONTROL = """\
#!/bin/sh
echo "scontrol $*" >>"$HOME/asked"
case $* in
"show node"*) cat "$HOME/node" ;;
"show config") echo "Prolog = (null)" ;;
"requeue 20") exit 1 ;;
*"show job 20") echo "JobId=20 JobState=RUNNING Requeue=1 BatchFlag=0 Reboot=0" ;;
esac
"""
_SCANCEL = """\
#!/bin/sh
echo "scancel $*" >>"$HOME/asked"
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
    for name, text in (("scontrol", _SCONTROL), ("squeue", _SQUEUE), ("scancel", _SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "node").write_text(f"NodeName=w\n   State={state} ThreadsPerCore=1\n")
    (folder / "jobs").touch()
    (folder / "asked").touch()
    text = (FOLDER / "requeue-lost-jobs").read_text().replace("/usr/lib/cellblock", str(FOLDER))
    text = text.replace(f"{FOLDER}/processes.sh", str(PROCESSES))
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


def requeued(folder: Path) -> set[str]:
    """The jobs."""
    return {line.split()[-1] for line in asked(folder) if line.startswith("scontrol requeue ")}


def listed(batch_host: str, begun: dict[str, int], batch: int = 1) -> str:
    """What squeue says of jobs."""
    return "".join(f"{job} {job} {batch} {batch_host} {when} N/A None\n" for job, when in begun.items())


def test_jobs_of_a_container_that_is_gone_are_queued_again_before_the_later_look(tmp_path: Path) -> None:
    with looking(tmp_path / "one", "MIXED*", patience_s=90) as folder:
        now = int((folder / "slurmd.pid").stat().st_mtime)
        # 11 and 14 began before this slurmd. 12 may be this slurmd's, and 13 and 15 surely are.
        scripts_here = {"11": now, "12": now + 2, "13": now + 6}
        scripts_elsewhere = {"14": now, "15": now + 6}
        of_srun = listed("w", {"20": now}, batch=0)
        (folder / "jobs").write_text(listed("w", scripts_here) + listed("v", scripts_elsewhere) + of_srun)
        while "scancel --quiet 20" not in asked(folder):
            assert time.time() < now + 90, "it was the later look"
            time.sleep(0.2)
        # Others would have followed at once.
        time.sleep(1)
        assert requeued(folder) == {"11", "14", "20"}
        assert [line.split()[-1] for line in asked(folder) if line.startswith("scancel ")] == ["20"]
        assert any(line.startswith("scontrol notify 20 ") for line in asked(folder)), "its user is told"


def test_a_slurmd_that_is_not_its_containers_first_leaves_alone_jobs_whose_script_runs_elsewhere(
    tmp_path: Path,
) -> None:
    """Their steps here may be over, and slurmctld looks after those that are not"""
    with looking(tmp_path / "again", "MIXED", 5, before_slurmd=False) as folder:
        now = int((folder / "slurmd.pid").stat().st_mtime)
        elsewhere = listed("v", {"11": now - 9}) + listed("w", {"20": now - 9}, batch=0)
        (folder / "jobs").write_text(elsewhere + listed("w", {"12": now - 9}))
        deadline = time.monotonic() + _BUSY_S
        while not requeued(folder):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        time.sleep(1)
        assert requeued(folder) == {"12"}


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
