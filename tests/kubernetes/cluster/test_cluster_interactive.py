# SPDX-License-Identifier: Apache-2.0
"""srun and salloc on a login node of the page's cluster hear what slurmctld has to tell them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kubernetes.helpers.page_cluster import INACTIVE_S, USER, PageCluster

pytestmark = pytest.mark.integration

# Seconds until a command knows what slurmctld knows.
_TOLD_S = 20
# Slurm ends an allocation after InactiveLimit and a third, MessageTimeout and a second.
_ENDED_S = INACTIVE_S * 4 / 3 + 60 + 1
_NODES = ("cpu-0", "cpu-1")


@dataclass(frozen=True)
class Interactive:
    """A command on a login node, and the file that has what it prints."""

    process: subprocess.Popen[bytes]
    output: Path

    def ended(self) -> bool:
        """Whether it has."""
        return self.process.poll() is not None

    def said(self) -> str:
        """What it has printed."""
        return self.output.read_text()


def start(cluster: PageCluster, output: Path, stack: ExitStack, program: str, *rest: str) -> Interactive:
    """Run srun or salloc as the user on a login node until the stack is left, and wait until its job runs.

    The job has the name of the file.
    """
    kubernetes = cluster.kubernetes
    kubectl = (f"{kubernetes.folder}/bin/kubectl", f"--kubeconfig={kubernetes.configuration}")
    enter = ("jail-enter", "--plan", "/etc/cellblock/jail.fstab", "--user", USER, "--")
    command = (program, f"--job-name={output.name}", *rest)
    with output.open("w") as file:
        process = subprocess.Popen(
            [*kubectl, "exec", f"--namespace={cluster.space}", "login-0", "--", *enter, *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    stack.callback(process.wait)
    stack.callback(process.kill)
    cluster.until(f"a job {output.name}", lambda: bool(job_of(cluster, output.name)))
    return Interactive(process, output)


def job_of(cluster: PageCluster, name: str) -> str:
    """The number of the running job of that name; nothing without one."""
    return cluster.slurm("squeue", "-h", "-t", "running", "--name", name, "-o", "%i").strip()


@contextmanager
def silent(cluster: PageCluster, pod: str) -> Iterator[None]:
    """Nothing gets to a pod or comes from it, as when its machine has lost power."""
    address = cluster.pod(pod)["status"]["podIP"]
    rules = [("FORWARD", side, address, "-j", "DROP") for side in ("-s", "-d")]
    with ExitStack() as stack:
        for rule in rules:
            subprocess.run(["iptables", "-I", *rule], check=True)
            stack.callback(subprocess.run, ["iptables", "-D", *rule], check=True)
        yield


def test_commands_on_a_login_node_are_told_that_a_node_failed_or_their_job_was_cancelled_and_are_not_idle(
    cluster: PageCluster, tmp_path: Path
) -> None:
    cluster.until("two idle nodes", cluster.serves)
    one, other = _NODES
    with ExitStack() as stack:
        asks = {node: (f"--nodelist={node}", "--mem=10", "--chdir=/tmp") for node in _NODES}
        idle = start(cluster, tmp_path / "idle", stack, "salloc", *asks[one], "sleep", "1000")
        since = time.monotonic()
        alone = start(cluster, tmp_path / "alone", stack, "srun", *asks[one], "sleep", "1000")
        cut = start(cluster, tmp_path / "cut", stack, "srun", *asks[other], "sleep", "1000")
        step = start(cluster, tmp_path / "step", stack, "salloc", *asks[other], "srun", "sleep", "1000")
        with silent(cluster, other):
            cluster.until("slurmctld to notice", lambda: cluster.nodes()[other].startswith("down"), 180)
            cluster.until("the end of both", lambda: cut.ended() and step.ended(), _TOLD_S)
        assert f"Node failure on {other}" in cut.said()
        assert f"Node failure on {other}" in step.said()
        cluster.slurm("scancel", job_of(cluster, "alone"))
        cluster.until("the end of an srun", alone.ended, _TOLD_S)
        assert "CANCELLED" in alone.said()
        time.sleep(max(0.0, since + _ENDED_S + INACTIVE_S - time.monotonic()))
        assert not idle.ended(), idle.said()
        cluster.slurm("scancel", job_of(cluster, "idle"))
        # salloc goes on with its command.
        cluster.until("salloc to say it", lambda: "has been revoked" in idle.said(), _TOLD_S)
    cluster.until("two idle nodes", cluster.serves)


def test_commands_whose_pod_is_replaced_at_once_end_soon(cluster: PageCluster, tmp_path: Path) -> None:
    """Their tasks are gone, and slurmctld takes neither job for a lost one"""
    cluster.until("two idle nodes", cluster.serves)
    rest = ("--mem=10", "--chdir=/tmp", "sh", "-c", "echo begun; sleep 1000")
    with ExitStack() as stack:
        over_two = start(cluster, tmp_path / "over-two", stack, "srun", "--nodes=2", *rest)
        alone = start(cluster, tmp_path / "alone", stack, "srun", "--nodelist=cpu-1", *rest)
        cluster.until(
            "all tasks", lambda: (over_two.said().count("begun"), alone.said().count("begun")) == (2, 1)
        )
        cluster.evict("cpu-1", 0)
        cluster.until("its pod", lambda: cluster.is_ready("cpu-1"), 180)
        cluster.until("the end of both", lambda: alone.ended() and over_two.ended(), 100)
        for said in (alone.said(), over_two.said()):
            assert "srun: the container ended that ran job" in said
    cluster.until("two idle nodes", cluster.serves)
