# SPDX-License-Identifier: Apache-2.0
"""Tries a job on a node that node.py broke, and checks how it failed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.integration.faults.node import (
    WORKER,
    plan_file,
)
from tests.integration.jobs import output, sbatch
from tests.integration.local_cluster import LocalCluster


@dataclass(frozen=True)
class Attempt:
    """A job that was tried on the worker."""

    status: int
    causes: list[str]
    """Lines of the plugin in the job's own error output."""
    logged: list[str]
    """Lines of the plugin in slurmd's log."""
    ran: bool
    drained: bool
    reason: str


def node(cluster: LocalCluster) -> tuple[bool, str]:
    """Whether the worker is drained, and why."""
    text = cluster.on("controller", "scontrol", "show", "node", WORKER).ok()
    state, reason = re.search(r"State=(\S+)", text), re.search(r"Reason=(.*) \[", text)
    assert state is not None
    return "DRAIN" in state[1], reason[1] if reason else ""


def resume(cluster: LocalCluster) -> None:
    if node(cluster)[0]:
        cluster.on("controller", "scontrol", "update", f"nodename={WORKER}", "state=resume").ok()
    cluster.wait_until("the node is in service", lambda: not node(cluster)[0])


def causes(text: str) -> list[str]:
    return [line for line in text.splitlines() if "spank_jail: " in line]


def attempt(
    cluster: LocalCluster, user: str, *, batch: bool = False, options: tuple[str, ...] = ()
) -> Attempt:
    """Try a job that leaves a mark if it runs at all, wherever it runs."""
    folder = cluster.root / "home" / user
    for name in ("ran", "error"):
        (folder / name).unlink(missing_ok=True)
    cluster.on(WORKER, "sh", "-c", "> /var/log/slurm/slurmd.log").ok()
    mark = f"touch /home/{user}/ran /mnt/jail/root/home/{user}/ran /tmp/ran-outside"
    where = ("-w", WORKER, "-D", f"/home/{user}")
    if batch:
        files = ("-o", "/dev/null", "-e", f"/home/{user}/error")
        job = sbatch(cluster, user, mark, "--no-requeue", *files, *where, *options)
        status = 0 if cluster.job(job)["JobState"] == "COMPLETED" else 1
        error = output(cluster, user, "error")
    else:
        done = cluster.jail("srun", *where, *options, "sh", "-c", mark, user=user)
        status, error = done.status, done.err
    log = cluster.on(WORKER, "cat", "/var/log/slurm/slurmd.log").ok()
    outside = cluster.on(WORKER, "ls", "/tmp/ran-outside").status == 0
    drained, reason = node(cluster)
    ran = (folder / "ran").exists() or outside
    return Attempt(status, causes(error), causes(log), ran, drained, reason)


def check(cluster: LocalCluster, found: Attempt, pattern: str) -> None:
    """It failed, did not run, and one line says why."""
    last = len(plan_file(cluster).read_text().splitlines()) if plan_file(cluster).exists() else 0
    expected = pattern.replace("LAST", str(last))
    assert not found.ran
    assert found.status != 0
    assert len(found.causes) == 1, found
    assert re.search(expected, found.causes[0]), found
    assert any(re.search(expected, line) for line in found.logged), found
