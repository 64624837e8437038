# SPDX-License-Identifier: Apache-2.0
"""`build.py logs` and `clusters`: every daemon's lines with time, a job's alone, and as they come."""

from __future__ import annotations

import contextlib
import json
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.listing import list_clusters
from cellblock.cluster.logs import LogRequest, log_lines
from cellblock.errors import CellblockError, UsageError
from cellblock.paths import PROJECT
from tests.documented import lines_for
from tests.integration.jobs import sbatch, srun
from tests.integration.local_cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.every_slurm]

_TIME = re.compile(r"\[?20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}")


def printed(cluster: LocalCluster, *arguments: str, cwd: Path | None = None) -> str:
    command = [sys.executable, str(PROJECT / "build.py"), *arguments, "--name", cluster.request.name or ""]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd).stdout


def test_a_job_is_followed_through_all_daemons(cluster: LocalCluster, user: str) -> None:
    job = sbatch(cluster, user, "srun true", "-D/", "-o/dev/null", "-w", "worker-1")
    request = LogRequest(cluster.request.name or "", job=int(job))
    cluster.wait_until(
        "the step's end is told", lambda: any("batch] done with" in line.text for line in log_lines(request))
    )
    lines = list(log_lines(request))
    assert {line.host for line in lines} >= {"controller", "worker-1"}
    assert [line.time for line in lines] == sorted(line.time for line in lines)
    # Each daemon's line has the time in itself, for other readers of the container's output. Those
    # of 22.05 have none but where slurmstepd writes them.
    own = [line for line in lines if cluster.status.release >= "24.11" or line.text.startswith("[")]
    assert own
    assert all(_TIME.search(line.text) for line in own), own
    # slurmstepd's, once each.
    ends = [line.text for line in lines if f"[{job}.batch] done with" in line.text]
    assert len(ends) == 1


@pytest.mark.others_at_night
def test_of_a_job_that_nobody_knows_it_is_said_with_the_next_step(cluster: LocalCluster) -> None:
    name = cluster.request.name or ""
    with pytest.raises(
        CellblockError, match=f"no line in the logs of cluster {name} is about job 9876543"
    ) as raised:
        list(log_lines(LogRequest(name, job=9876543)))
    assert f"shell --admin --name {name} squeue`" in raised.value.hint


@pytest.mark.others_at_night
def test_the_last_lines_about_a_job_are_counted_by_themselves(cluster: LocalCluster, user: str) -> None:
    """Others' lines come after them."""
    job = sbatch(cluster, user, "true", "-D/", "-o/dev/null")
    request = LogRequest(cluster.request.name or "", "controller", job=int(job))
    cluster.wait_until("it is over", lambda: any("done" in line.text for line in log_lines(request)))
    lines = list(log_lines(request))
    other = sbatch(cluster, user, "true", "-D/", "-o/dev/null")
    others = LogRequest(cluster.request.name or "", "controller", job=int(other))
    cluster.wait_until("another is over", lambda: any("done" in line.text for line in log_lines(others)))
    assert list(log_lines(LogRequest(request.cluster, "controller", int(job), 1))) == lines[-1:]


@pytest.mark.others_at_night
def test_what_is_kept_of_a_containers_output_has_a_bound(cluster: LocalCluster) -> None:
    """Users' requests are lines in it, thousands a second, and its file lies on this machine."""
    name = container_name(cluster.request.name, "worker-2")
    inspect = ["podman", "inspect", "--format", "{{.HostConfig.LogConfig.Path}}", name]
    path = Path(subprocess.run(inspect, check=True, capture_output=True, text=True).stdout.strip())
    cluster.on("worker-2", "sh", "-c", "yes some-line | head -c 200000000 >/proc/1/fd/1").ok()
    cluster.wait_until("it is read", lambda: path.exists())
    assert path.stat().st_size < 100_000_000


@pytest.mark.others_at_night
def test_roles_and_hosts(cluster: LocalCluster) -> None:
    name = cluster.request.name or ""
    workers = {line.host for line in log_lines(LogRequest(name, "worker"))}
    assert workers == {"worker-1", "worker-2"}
    assert {line.host for line in log_lines(LogRequest(name, "worker-2"))} == {"worker-2"}
    assert len(list(log_lines(LogRequest(name, "controller", lines=2)))) == 2
    with pytest.raises(UsageError, match="no role or host 'printer'") as caught:
        next(log_lines(LogRequest(name, "printer")))
    assert "worker-1" in caught.value.hint


@pytest.mark.others_at_night
def test_lines_are_followed_as_they_come(cluster: LocalCluster) -> None:
    command = [sys.executable, str(PROJECT / "build.py"), "logs", "--follow", "--json", "--lines", "0"]
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    with subprocess.Popen(
        [*command, "--name", cluster.request.name or ""], stdout=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout
        reader = threading.Thread(target=_read_into, args=(told, following.stdout))
        reader.start()
        try:
            # What is printed before podman listens is not among those to come: steps run until one is told.
            cluster.wait_until("a line of a step is followed", lambda: _step_is_told(cluster, told))
            assert following.poll() is None
        finally:
            following.terminate()
            reader.join()


def _read_into(told: queue.SimpleQueue[str], lines: Iterable[str]) -> None:
    for line in lines:
        told.put(line)


def _step_is_told(cluster: LocalCluster, told: queue.SimpleQueue[str]) -> bool:
    srun(cluster, "root", "-D/", "-w", "worker-1", "true").ok()
    with contextlib.suppress(queue.Empty):
        while True:
            line = json.loads(told.get(timeout=1))
            if line["host"] in ("controller", "worker-1") and line["text"]:
                return True
    return False


@pytest.mark.others_at_night
def test_the_cluster_is_listed(cluster: LocalCluster) -> None:
    (row,) = [one for one in list_clusters() if one.name == cluster.request.name]
    assert (row.state, row.nodes, row.variant) == ("ready", 2, cluster.request.variant)
    assert (
        f"{row.name} "
        in subprocess.run(
            [sys.executable, str(PROJECT / "build.py"), "clusters"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


@pytest.mark.others_at_night
def test_the_page_says_what_to_type(cluster: LocalCluster) -> None:
    for line in lines_for("troubleshooting.md", "test_the_page_says_what_to_type"):
        assert printed(cluster, *line.replace(" 12", " 1").split()[2:]) is not None
