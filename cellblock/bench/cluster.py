# SPDX-License-Identifier: Apache-2.0
"""Measures a local cluster: times of `up` and of slurmctld's restart, and what Cellblock costs Slurm.

The cluster has accounting and an exporter of metrics, later also 2,000 nodes that are only declared, with
50,000 jobs (parts/cluster_scale.py). The first `up` begins with an empty CELLBLOCK_CACHE, but the packages
that Cellblock itself needs are installed. Submissions are compared with a slurmctld of the same package with
a plain configuration. A FUSE file system under the volume counts the calls of a step; calls that the cluster
makes without a step are subtracted.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from cellblock.bench.harness.scratch import scratch
from cellblock.bench.harness.slow_fs import counting_filesystem
from cellblock.bench.parts.cluster_commands import build, inside
from cellblock.bench.parts.cluster_scale import JOBS, LINES, NODES, Measured, Scale
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError
from cellblock.events import Events

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "bench-cluster"
"""The cluster that is measured; another of that name is not touched."""

CLIENTS = 8
SUBMISSIONS = 25
"""Jobs that each client submits, one after the other."""

USER = "cellblock-bench"
"""Whose jobs these are; cluster.sh has the name, too."""

SCRAPES = 30
RESTARTS = 5
STEPS = 100
_QUIET_S = 10

_FILE = """\
name: {name}
login: {{ssh_port: {ssh_port}}}
accounting: {{}}
metrics: {{port: {port}}}
node_sets:
  - {{name: worker, count: 2}}
partitions:
  - {{name: main, default: true, node_sets: [worker]}}
slurm: {{extra: {{slurm.conf: {lines}}}}}
"""


@dataclass(frozen=True)
class ClusterCost:
    """Times in seconds unless a name says otherwise; `seconds` is what the benchmark took."""

    up_cold_s: float
    up_images_there_s: float
    up_warm_s: float
    restarts_s: list[float]
    scrapes_ms: list[float]
    submit_per_s: float
    plain_submit_per_s: float
    volume_ops: dict[str, float]
    """Calls to the volume's file system by kind of step (cluster.sh)."""
    scale: Scale
    seconds: float

    def keys(self) -> dict[str, float]:
        """The keys that `build.py bench cluster --json` prints."""
        ops = self.volume_ops
        return {
            "up_cold_s": round(self.up_cold_s, 1),
            "up_images_there_s": round(self.up_images_there_s, 1),
            "up_warm_s": round(self.up_warm_s, 1),
            "controller_restart_s": round(median(self.restarts_s), 2),
            f"scrape_ms_{NODES}_nodes": round(median(self.scrapes_ms), 1),
            "submit_per_s": round(self.submit_per_s, 1),
            "plain_submit_per_s": round(self.plain_submit_per_s, 1),
            "submit_ratio": round(self.submit_per_s / self.plain_submit_per_s, 2),
            "volume_ops_per_step": round(ops["static"], 1),
            "volume_ops_added_by_true": round(ops["true"] - ops["static"], 1),
            "volume_ops_added_by_bash": round(ops["bash"] - ops["static"], 1),
            "volume_ops_added_by_srun_in_the_jail": round(ops["inside"] - ops["true"], 1),
            **self.scale.keys(),
        }


def cluster_cost(variant: str | None, events: Events) -> ClusterCost:
    """Bring a cluster of `variant` up several times, measure, and take it down with its volume.

    Raises CellblockError when there is a cluster called NAME, or when a step of the benchmark fails.
    """
    if state.folder(NAME).exists():
        raise CellblockError(
            f"there is a cluster called {NAME}", hint=f"python3 build.py down --name {NAME} --purge"
        )
    began = time.monotonic()
    with scratch() as folder:
        port = _free_port()
        text = _FILE.format(name=NAME, ssh_port=_free_port(), port=port, lines=json.dumps(LINES))
        file = folder / "cluster.yaml"
        file.write_text(text, encoding="utf-8")
        options = [*(["--variant", variant] if variant else []), "--cluster"]
        cache = {"CELLBLOCK_CACHE": str(folder / "cache")}
        try:
            with events.step("cold", "up with an empty cache"):
                cold = _timed("up", *options, str(file), more=cache)
            with events.step("warm", "up, nothing changed"):
                warm = median(_timed("up", *options, str(file), more=cache) for _ in range(3))
            build("down", "--name", NAME, "--purge", more=cache)
            with events.step("images there", "up of a new cluster"):
                there = _timed("up", *options, str(file), more=cache)
            with events.step("restart", f"slurmctld killed, {RESTARTS} times"):
                restarts = [_restart() for _ in range(RESTARTS)]
            with events.step("submit", f"{CLIENTS} clients"):
                submit, plain = _submissions()
            with events.step("scale", f"{NODES} declared nodes, {JOBS} jobs"):
                scale = Measured(NAME, file, USER, cache).scale()
            with events.step("scrape", f"{NODES} declared nodes, {JOBS} jobs"):
                scrapes = _scrapes(port)
            build("down", "--name", NAME, "--purge", more=cache)
            with events.step("volume", f"{STEPS} steps of each kind"):
                ops = _volume_operations(folder, [*options, str(file)], cache)
        finally:
            build("down", "--name", NAME, "--purge", more=cache, check=False)
    return ClusterCost(
        cold, there, warm, restarts, scrapes, submit, plain, ops, scale, time.monotonic() - began
    )


def _timed(*arguments: str, more: dict[str, str]) -> float:
    began = time.monotonic()
    build(*arguments, more=more)
    return time.monotonic() - began


def _inside(hostname: str, *command: str) -> str:
    return inside(NAME, hostname, *command)


def _restart() -> float:
    """Seconds from the end of slurmctld to the end of a first job."""
    began = time.monotonic()
    _inside("controller", "sh", "-c", "kill -KILL $(pidof slurmctld)")
    first_job = "until srun --quiet --mpi=none true 2>/dev/null; do sleep 0.1; done"
    _inside("login", "timeout", "120", "sh", "-c", first_job)
    return time.monotonic() - began


def _submissions() -> tuple[float, float]:
    """Jobs a second that slurmctld takes: from the jail, and a plain one of the same package."""
    script = files("cellblock.bench").joinpath("cluster.sh").read_text(encoding="utf-8")
    numbers = (str(CLIENTS), str(SUBMISSIONS))
    _make_user()
    ours = ("jail-enter", "--user", USER, "--", "bash", "-c", script, "bench", "submit", *numbers)
    taken = float(_inside("login", *ours).split()[-1])
    plain = float(_inside("controller", "bash", "-c", script, "bench", "plain", *numbers).split()[-1])
    _inside("controller", "scancel", "--user", USER)
    total = CLIENTS * SUBMISSIONS
    return total / taken, total / plain


def _make_user() -> None:
    _inside("login", "jail-enter", "--", "useradd", "--create-home", USER)
    # Until slurmctld takes the user's jobs.
    _inside("login", "jail-enter", "--user", USER, "--", "srun", "--quiet", "--mpi=none", "true")


def _scrapes(port: int) -> list[float]:
    """Milliseconds of each of SCRAPES requests, from when the page has all nodes."""
    url = f"http://127.0.0.1:{port}/metrics"
    deadline = time.monotonic() + 180
    while "gone" not in _page(url):
        if time.monotonic() > deadline:
            raise CellblockError("the exporter shows no declared node", hint=f"curl {url}")
        time.sleep(1)

    def one() -> float:
        began = time.monotonic()
        _page(url)
        return (time.monotonic() - began) * 1000

    return [one() for _ in range(SCRAPES)]


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _volume_operations(folder: Path, options: Sequence[str], cache: dict[str, str]) -> dict[str, float]:
    """Calls to the volume's file system a step, by kind (cluster.sh)."""
    volume = state.folder(NAME) / "volume"
    volume.mkdir(parents=True)
    with counting_filesystem(folder / "volume", volume) as count, _taken_down(cache):
        build("up", *options, more=cache)
        source = folder / "static.c"
        source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
        _make_user()
        subprocess.run(["gcc", "-static", "-o", str(volume / "root/static"), str(source)], check=True)
        return _count(count)


@contextmanager
def _taken_down(cache: dict[str, str]) -> Iterator[None]:
    """The cluster stops before the file system under its volume is unmounted."""
    try:
        yield
    finally:
        build("down", "--name", NAME, more=cache, check=False)


def _count(count: Callable[[], int]) -> dict[str, float]:
    script = files("cellblock.bench").joinpath("cluster.sh").read_text(encoding="utf-8")
    operations: dict[str, float] = {}
    before, began = count(), time.monotonic()
    time.sleep(_QUIET_S)
    per_second = (count() - before) / (time.monotonic() - began)
    for kind in ("static", "true", "bash", "inside"):
        # An allocation does what a job needs once; the difference of two numbers of steps is the steps'.
        counts = []
        for steps in (1, 1 + STEPS):
            before, began = count(), time.monotonic()
            _inside("login", "bash", "-c", script, "bench", "steps", kind, str(steps))
            counts.append(count() - before - per_second * (time.monotonic() - began))
        operations[kind] = (counts[1] - counts[0]) / STEPS
    return operations


def _free_port() -> int:
    """A port of this machine's that nobody has now."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port: int = chosen.getsockname()[1]
        return port
