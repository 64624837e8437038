# SPDX-License-Identifier: Apache-2.0
"""Measures how much processor time of slurmctld Cellblock's commands take, as nodes and jobs grow.

Nodes are only declared and jobs are held: this measures the questions to slurmctld, not its scheduling.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from cellblock.bench.parts.cluster_commands import build, inside, podman
from cellblock.cluster.engine.container_specs import container_name
from cellblock.errors import CellblockError

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = 2000
"""Nodes that are declared and not there."""

JOBS = 50_000
"""Jobs that are held."""

RUNS = 5
# proc(5), utime and stime.
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_STEPS = 10
# slurm.conf has MaxArraySize=1001. An array that waits is one record: to change a part of it splits off each
# of that part, and one task stays.
_TASKS = 1000
# scontrol splits a thousand in a second; on a busy machine more.
_SUBMIT = """set -e
for _ in $(seq "$1"); do
    id=$(sbatch --parsable --chdir=/ --hold --array=0-"$2" --output=/dev/null --wrap=true)
    scontrol update jobid="${id}_[1-$2]" nice=1
done"""
# RFC 5737 has the address: nobody's.
_NODE = ("cpus=64", "realmemory=1000", "nodeaddr=192.0.2.1", "state=CLOUD")

LINES = f"MaxNodeCount={NODES + 100}\nMaxJobCount={2 * JOBS}\n"
"""What slurm.conf of the cluster must have."""


@dataclass(frozen=True)
class Scale:
    """Milliseconds of slurmctld's processor time by command: without jobs, and with all nodes and jobs."""

    few: Mapping[str, float]
    many: Mapping[str, float]
    dumps: Mapping[str, int]
    """How often each command has slurmctld list all jobs."""

    def keys(self) -> dict[str, float]:
        """The keys that `build.py bench cluster --json` prints."""
        return {
            **{f"slurmctld_ms_{command}": round(value, 1) for command, value in self.few.items()},
            **{f"slurmctld_ms_{command}_at_scale": round(value, 1) for command, value in self.many.items()},
            **{f"job_lists_{command}": count for command, count in self.dumps.items()},
        }


class Measured:
    """The running cluster `name`, of the cluster file `file`; `user` is one of the jail's."""

    def __init__(self, name: str, file: Path, user: str, more: Mapping[str, str]) -> None:
        self._name, self._user = name, user
        jail = ("jail-enter", "--user", user, "--")
        steps = f"cd /; for _ in $(seq {_STEPS}); do srun --mpi=none true; done"
        in_allocation = ("salloc", "--quiet", "--nodelist=worker-1", "-n1", "bash", "-c", steps)
        held = ("sbatch", "--quiet", "--chdir=/", "--hold", "--output=/dev/null", "--wrap=true")
        self._commands: dict[str, Callable[[], object]] = {
            "status": lambda: build("status", "--name", name, more=more),
            "clusters": lambda: build("clusters", more=more),
            "diff": lambda: build("cluster", "diff", str(file), more=more),
            "up_warm": lambda: build("up", "--cluster", str(file), more=more),
            f"{_STEPS}_steps": lambda: inside(name, "login", *jail, *in_allocation),
            "sbatch": lambda: inside(name, "login", *jail, *held),
            "watch": lambda: inside(name, "controller", "squeue", "--noheader", "--user=slurm"),
        }

    def scale(self) -> Scale:
        """Measure, let nodes and jobs grow, and measure again."""
        few, _ = self._measure()
        self._grow()
        return Scale(few, *self._measure())

    def _grow(self) -> None:
        # It is in no partition's way: a job could not run there.
        gone = f"nodename=gone[1-{NODES}]"
        inside(self._name, "controller", "scontrol", "create", gone, *_NODE)
        inside(self._name, "controller", "scontrol", "update", gone, "state=down", "reason=bench")
        submit = ("bash", "-c", _SUBMIT, "submit", str(JOBS // _TASKS), str(_TASKS))
        inside(self._name, "login", "jail-enter", "--user", self._user, "--", *submit)

    def _measure(self) -> tuple[dict[str, float], dict[str, int]]:
        taken: dict[str, float] = {}
        dumps: dict[str, int] = {}
        with self._exporter_paused():
            for command, run in self._commands.items():
                before, values = self._job_lists(), []
                for _ in range(RUNS):
                    began = self._processor_time()
                    run()
                    values.append(self._processor_time() - began)
                taken[command] = median(values)
                dumps[command] = round((self._job_lists() - before) / RUNS)
        return taken, dumps

    @contextmanager
    def _exporter_paused(self) -> Iterator[None]:
        """It asks by itself, once an interval."""
        # Its process, not its container, which would not be ready.
        inside(self._name, "metrics", "pkill", "-STOP", "-x", "python3")
        try:
            yield
        finally:
            inside(self._name, "metrics", "pkill", "-CONT", "-x", "python3")

    def _job_lists(self) -> int:
        found = re.search(
            r"REQUEST_JOB_INFO\s+\(\s*\d+\) count:(\d+)", inside(self._name, "controller", "sdiag")
        )
        return int(found[1]) if found else 0

    def _processor_time(self) -> float:
        """Milliseconds that slurmctld has used, but for its saves of changed jobs.

        Those take a tenth of a processor at most, and go on after the command
        (spank_jail/guards/controller/state_saves.c).
        """
        process = self._slurmctld()
        # The clock of another process, as clock_getcpuclockid(3) makes it. Threads of others have none.
        used = time.clock_gettime((~process << 3) | 2) * 1000
        for thread in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):  # one that has ended meanwhile
                if (thread / "comm").read_text() == "sstate\n":
                    used -= sum(map(int, (thread / "stat").read_text().split()[13:15])) * _TICK_MS
        return used

    def _slurmctld(self) -> int:
        """The number of its process on this machine: it may have started anew."""
        first = podman("inspect", "--format", "{{.State.Pid}}", container_name(self._name, "controller"))
        space = Path(f"/proc/{first.stdout.strip()}/ns/pid").readlink()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if (process / "cmdline").read_bytes().startswith(b"slurmctld\0") and (
                    (process / "ns/pid").readlink() == space
                ):
                    return int(process.name)
            except OSError:
                continue  # it has ended meanwhile
        raise CellblockError("slurmctld does not run", hint=f"python3 build.py logs --name {self._name}")
