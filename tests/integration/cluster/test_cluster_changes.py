# SPDX-License-Identifier: Apache-2.0
"""A changed cluster file changes what runs with the least harm: jobs go on, or are waited for."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.cluster.changing.changes import Changes
from cellblock.cluster.changing.configuration_trial import PLUGSTACK, try_on_nodes
from cellblock.cluster.configuration import config_files
from cellblock.cluster.diff import cluster_diff
from cellblock.cluster.engine.api import connect
from cellblock.cluster.facts import state
from cellblock.cluster.local import stop
from cellblock.cluster.up import bring_up
from cellblock.cluster.up_request import UpRequest
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.paths import PROJECT
from tests.documented import lines_for
from tests.integration.conftest import default_variant, other_variants, running_cluster, write_cluster_file
from tests.integration.jobs import ended, submit
from tests.integration.local_cluster import LocalCluster, podman
from tests.ports import free_port

pytestmark = pytest.mark.integration

FILE = """\
node_sets:
  - {name: cpu, count: 1}
  - {name: gpu, count: 1, gres: {"gpu:a100": 4}, weight: 10}
partitions:
  - {name: main, default: true, max_time: 7d}
  - {name: big, node_sets: [gpu]}
"""
# What stands in FILE -> what is to stand there.
Edit = tuple[str, str]


@pytest.fixture(scope="module", params=[default_variant(), *other_variants()])
def changed(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster of two node sets, with a user."""
    with running_cluster("changed", request.param, text=FILE) as running:
        running.add_user("ada")
        yield running


def request_of(cluster: LocalCluster, folder: Path, *edits: Edit, wait: str | None = None) -> UpRequest:
    text = FILE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return replace(cluster.request, file=write_cluster_file(folder, text), wait=wait)


def difference(request: UpRequest) -> Changes:
    return cluster_diff(request, Events())[1]


def drains(cluster: LocalCluster) -> bool:
    """Whether single nodes start anew; with Slurm 22.05 the whole cluster does."""
    return cluster.status.release >= "23.11"


def started(cluster: LocalCluster, host: str) -> str:
    """What changes when the container of a host starts anew."""
    return cluster.on(host, "cat", "/proc/1/stat").ok().split()[21]


def runs(cluster: LocalCluster, *options: str) -> str:
    """A job that runs until somebody ends it."""
    job = submit(cluster, "ada", "sleep 600", "-D/", "-o/dev/null", *options)
    cluster.wait_until("the job runs", lambda: cluster.job(job)["JobState"] == "RUNNING")
    return job


def node(cluster: LocalCluster, name: str) -> str:
    """What scontrol shows of a node; empty when there is none."""
    done = cluster.on("controller", "scontrol", "show", "node", name, "--oneliner")
    return done.out if done.status == 0 else ""


def known_nodes(cluster: LocalCluster) -> set[str]:
    """The nodes that slurmctld knows; sinfo shows those in partitions alone."""
    shown = cluster.on("controller", "scontrol", "--oneliner", "show", "nodes").ok()
    return set(re.findall(r"^NodeName=(\S+)", shown, re.MULTILINE)) - {"login"}


@pytest.fixture
def as_before(changed: LocalCluster) -> Iterator[None]:
    """Afterwards the cluster is what FILE says, without jobs."""
    yield
    changed.cancel_jobs()
    bring_up(replace(changed.request, wait="0"), Events())
    assert difference(changed.request).changes == ()
    assert known_nodes(changed) == {"cpu-1", "gpu-1"}


@pytest.mark.usefixtures("as_before")
def test_limits_change_while_jobs_run(changed: LocalCluster, tmp_path: Path) -> None:
    job = runs(changed, "-w", "cpu-1")
    hosts = ("cpu-1", "gpu-1", "login")
    before = [started(changed, host) for host in hosts]
    request = request_of(changed, tmp_path, ("max_time: 7d", "max_time: 3d"))
    effects = {change.effect for change in difference(request).changes}
    assert effects <= {"reconfigure", "restart"}
    assert "MaxTime=7-00:00:00" in changed.on("controller", "scontrol", "show", "partition", "main").ok()
    bring_up(request, Events())
    assert "MaxTime=3-00:00:00" in changed.on("controller", "scontrol", "show", "partition", "main").ok()
    assert [started(changed, host) for host in hosts] == before
    assert changed.job(job)["JobState"] == "RUNNING"
    assert difference(request).changes == ()
    # Nodes tell of their steps where somebody asks.
    assert not (changed.root.parent / ".cellblock/nodes").exists()


@pytest.mark.others_at_night
def test_the_page_says_what_to_type(changed: LocalCluster, tmp_path: Path) -> None:
    (line,) = lines_for("cluster-file.md", "test_the_page_says_what_to_type")
    request = request_of(changed, tmp_path, ("max_time: 7d", "max_time: 3d"))
    own = f"name: {request.name}\nvariant: {request.variant}\nlogin: {{ssh_port: {request.ssh_port}}}\n"
    file = tmp_path / "cluster.yaml"
    file.write_text(own + file.read_text())
    command = [sys.executable, str(PROJECT / "build.py"), *shlex.split(line)[2:], "--log", "plain"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    assert "PartitionName=main: MaxTime=3-00:00:00 instead of 7-00:00:00" in done.stdout
    told = json.loads(
        subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    )
    assert told["cluster"] == request.name
    assert [change["effect"] for change in told["changes"]] in (["reconfigure"], ["restart"])


@pytest.mark.usefixtures("as_before")
def test_nodes_come_and_go_and_no_job_is_lost(changed: LocalCluster, tmp_path: Path) -> None:
    job = runs(changed, "-w", "cpu-1")
    more = request_of(
        changed, tmp_path, ("- {name: cpu, count: 1}", "- {name: cpu, count: 3}\n  - {name: fat, count: 1}")
    )
    assert {change.effect for change in difference(more).changes} <= {"nothing", "reconfigure", "restart"}
    bring_up(more, Events())
    assert changed.job(job)["JobState"] == "RUNNING"
    for name in ("cpu-2", "cpu-3", "fat-1"):
        assert changed.client("srun", "-D/", "-w", name, "hostname", user="ada").ok().strip() == name
    if not drains(changed):
        with pytest.raises(CellblockError, match="loses jobs when single nodes do") as refused:
            bring_up(changed.request, Events())
        assert "--wait 0" in refused.value.hint
        assert changed.job(job)["JobState"] == "RUNNING"
        return
    # A job on a node that goes is waited for, with a bound.
    last = runs(changed, "-w", "cpu-3")
    waits = submit(changed, "ada", "true", "-D/", "-o/dev/null", "-w", "fat-1", "--hold")
    with pytest.raises(CellblockError, match=rf"jobs {last} still run on cpu-3") as caught:
        bring_up(replace(changed.request, wait="5s"), Events())
    assert "--wait" in caught.value.hint
    assert changed.job(last)["JobState"] == "RUNNING"
    changed.client("srun", "-D/", "-w", "cpu-3", "hostname", user="ada").ok()
    changed.on("controller", "scancel", last).ok()
    said: list[str] = []
    events = Events()
    events.subscribe(lambda event: said.append(str(event)))
    bring_up(changed.request, events)
    assert [name for name in ("cpu-2", "cpu-3", "fat-1") if node(changed, name)] == []
    assert changed.job(job)["JobState"] == "RUNNING"
    # Slurm ends a job whose node is forgotten.
    assert changed.job(waits)["JobState"] == "PENDING"
    assert any(f"job {waits}" in text and "fat-1, which is gone" in text for text in said)


@pytest.mark.usefixtures("as_before")
def test_nodes_that_went_while_the_cluster_was_down_are_forgotten(
    changed: LocalCluster, tmp_path: Path
) -> None:
    bring_up(request_of(changed, tmp_path, ("- {name: cpu, count: 1}", "- {name: cpu, count: 3}")), Events())
    job = runs(changed, "-w", "cpu-3", "--requeue")
    waits = submit(changed, "ada", "true", "-D/", "-o/dev/null", "-w", "cpu-2", "--hold")
    stop(changed.request.name or "", Events())
    said: list[str] = []
    events = Events()
    events.subscribe(lambda event: said.append(str(event)))
    # Another network takes the addresses that slurmctld remembers of nodes.
    taken = f"{changed.request.name}-taken"
    podman("network", "create", taken)
    try:
        bring_up(changed.request, events)
    finally:
        podman("network", "rm", "--force", taken)
    assert known_nodes(changed) == {"cpu-1", "gpu-1"}
    assert any(f"job {waits}" in text and "cpu-2, which is gone" in text for text in said)
    assert changed.job(waits)["JobState"] == "PENDING"
    assert changed.job(job)["JobState"] in ("PENDING", "RUNNING", "NODE_FAIL", "CANCELLED")
    assert changed.client("srun", "-D/", "-N2", "true", user="ada").status == 0


@pytest.mark.usefixtures("as_before")
def test_jobs_of_a_node_that_starts_anew_are_queued_again_when_asked(
    changed: LocalCluster, tmp_path: Path
) -> None:
    if not drains(changed):
        pytest.skip("with Slurm 22.05 the whole cluster starts anew")
    job = runs(changed, "-w", "gpu-1", "--requeue")
    other = runs(changed, "-w", "cpu-1")
    request = request_of(changed, tmp_path, ('"gpu:a100": 4', '"gpu:a100": 2'), wait="0")
    assert [change.on for change in difference(request).changes if change.effect == "drain"] == [("gpu-1",)]
    waits = submit(changed, "ada", "true", "-D/", "-o/dev/null", "-w", "gpu-1", "--begin=now+1hour")
    bring_up(request, Events())
    assert "Gres=gpu:a100:2" in node(changed, "gpu-1")
    for one in (job, waits):
        assert changed.job(one)["JobState"] in ("PENDING", "RUNNING")
        assert changed.job(one)["ReqNodeList"] == "gpu-1"
    assert changed.job(other)["JobState"] == "RUNNING"
    assert changed.job(other)["Restarts"] == "0"


@pytest.mark.usefixtures("as_before")
def test_a_node_waits_for_its_job_and_then_starts_anew(changed: LocalCluster, tmp_path: Path) -> None:
    if not drains(changed):
        pytest.skip("with Slurm 22.05 the whole cluster starts anew")
    script = "sleep 8; echo over"
    job = submit(changed, "ada", script, "-D/", "-o", "/home/ada/waited", "-w", "gpu-1")
    changed.wait_until("the job runs", lambda: changed.job(job)["JobState"] == "RUNNING")
    bring_up(request_of(changed, tmp_path, ('"gpu:a100": 4', '"gpu:a100": 3')), Events())
    assert changed.job(ended(changed, job))["JobState"] == "COMPLETED"
    assert (changed.root / "home/ada/waited").read_text() == "over\n"
    assert "Gres=gpu:a100:3" in node(changed, "gpu-1")


@pytest.mark.others_at_night
@pytest.mark.usefixtures("as_before")
def test_a_drain_of_an_administrators_stays(changed: LocalCluster, tmp_path: Path) -> None:
    if not drains(changed):
        pytest.skip("with Slurm 22.05 the whole cluster starts anew")
    drain = ("scontrol", "update", "nodename=gpu-1", "state=drain", "reason=bad_fan")
    changed.on("controller", *drain).ok()
    try:
        bring_up(request_of(changed, tmp_path, ('"gpu:a100": 4', '"gpu:a100": 1')), Events())
        shown = node(changed, "gpu-1")
        assert "Gres=gpu:a100:1" in shown
        assert "DRAIN" in shown
        assert "bad_fan" in shown
    finally:
        changed.on("controller", "scontrol", "update", "nodename=gpu-1", "state=resume")


@pytest.mark.usefixtures("as_before")
def test_a_partition_with_jobs_goes_when_they_are_over(changed: LocalCluster, tmp_path: Path) -> None:
    job = runs(changed, "--partition=big")
    waits = submit(changed, "ada", "true", "-D/", "-o/dev/null", "--partition=big", "--hold")
    request = request_of(changed, tmp_path, ("\n  - {name: big, node_sets: [gpu]}", ""))
    bring_up(request, Events())
    assert changed.job(job)["JobState"] == "RUNNING"
    assert changed.job(waits)["JobState"] == "PENDING"
    shown = changed.on("controller", "scontrol", "show", "partition", "big").ok()
    assert "State=DRAIN" in shown
    assert "Hidden=YES" in shown
    refused = changed.client("sbatch", "-D/", "--partition=big", "--wrap", "true", user="ada")
    assert refused.status != 0
    changed.on("controller", "scancel", job, waits).ok()
    for each in (job, waits):
        ended(changed, each)
    bring_up(request, Events())
    assert changed.on("controller", "scontrol", "show", "partition", "big").status != 0


@pytest.mark.others_at_night
@pytest.mark.usefixtures("as_before")
def test_the_login_node_starts_anew_and_jobs_go_on(changed: LocalCluster, tmp_path: Path) -> None:
    job = runs(changed, "-w", "cpu-1")
    request = replace(request_of(changed, tmp_path), ssh_port=free_port())
    assert [change.effect for change in difference(request).changes] == ["sessions"]
    before = started(changed, "controller")
    bring_up(request, Events())
    assert started(changed, "controller") == before
    assert changed.job(job)["JobState"] == "RUNNING"


@pytest.mark.others_at_night
def test_a_container_that_ended_is_started_alone(changed: LocalCluster) -> None:
    job = runs(changed, "-w", "cpu-1")
    before = started(changed, "controller")
    changed.on("gpu-1", "kill", "-TERM", "1")
    changed.wait_until("it ended", lambda: changed.on("gpu-1", "true").status != 0)
    assert [change.what for change in difference(changed.request).changes] == ["gpu-1: does not run"]
    bring_up(changed.request, Events())
    assert started(changed, "controller") == before
    assert changed.job(job)["JobState"] == "RUNNING"
    changed.client("srun", "-D/", "-w", "gpu-1", "--mem=1", "hostname", user="ada").ok()
    changed.on("controller", "scancel", job).ok()


@pytest.mark.usefixtures("as_before")
def test_accounting_comes_to_a_cluster_that_runs(changed: LocalCluster, tmp_path: Path) -> None:
    """slurmctld finds a state and no usage in it, as one does that was killed in its first minutes"""
    job = runs(changed, "-w", "cpu-1")
    bring_up(request_of(changed, tmp_path, ("node_sets:\n", "accounting: {}\nnode_sets:\n")), Events())
    kill = 'for p in /proc/[0-9]*; do grep -qx slurmctld "$p/comm" && kill -KILL "${p#/proc/}"; done; true'
    changed.on("controller", "sh", "-c", kill).ok()
    asked = ("sacct", "-nXP", "--allusers", "--format=jobid,state")
    changed.wait_until_slurmctld_answers()
    assert changed.job(job)["JobState"] == "RUNNING"
    new = submit(changed, "ada", "true", "-D/", "-o/dev/null", "--mem=1")
    ended(changed, new)
    changed.wait_until(
        "it is accounted for", lambda: f"{new}|COMPLETED" in changed.on("controller", *asked).out
    )


@pytest.mark.parametrize(
    ("plugin", "fault"),
    [("spank_jail", ""), ("spank_jail", "nonsense=1"), ("pyxis", ""), ("pyxis", "nonsense=1")],
)
def test_a_plugstack_that_nodes_would_end_by_is_tried_on_another_slurmd(
    changed: LocalCluster, tmp_path: Path, plugin: str, fault: str
) -> None:
    """Nodes that run have the plugins of when they started, and get what is written today."""
    known = state.require(changed.request.name or "")
    texts = dict(config_files.read(state.folder(known.name) / "config"))
    texts[PLUGSTACK] = texts[PLUGSTACK].replace(f"{plugin}.so ", f"{plugin}.so {fault} ")
    images = {one["image"]: host for host, one in known.containers.items() if one["role"] == "worker"}
    refused = pytest.raises(CellblockError, match=f'{plugin}: unknown argument "{fault}"')
    with connect(known.engine) as client, refused if fault else nullcontext():
        try_on_nodes(client, known.name, images, texts, tmp_path)
