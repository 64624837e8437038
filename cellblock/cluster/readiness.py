# SPDX-License-Identifier: Apache-2.0
"""Waits until a cluster takes jobs, with a bound, and says what it still lacks."""

from __future__ import annotations

import time

import docker

from cellblock.cluster import running, state
from cellblock.cluster.draining import node_states, resume_ours
from cellblock.cluster.model import SERVING
from cellblock.errors import CellblockError

# Seconds from the containers' start until all workers take jobs; two seconds is usual. The
# entrypoints give up after 60 by themselves, with a better message.
READY_S = 75.0
_POLL_S = 0.1
# From inside; bash is essential.
_REST_LISTENS = ["bash", "-c", ": < /dev/tcp/127.0.0.1/6820"]


def wait_ready(client: docker.DockerClient, new: state.ClusterState, *, resume: bool = False) -> None:
    """Wait until all containers run, all nodes take jobs and sshd listens on the login node.

    `resume` gives nodes that `up` drained back to service, and waits for none that an administrator drained.
    Raises CellblockError, naming what is missing, after READY_S seconds or when a container ends.
    """
    deadline = time.monotonic() + READY_S
    waiting_for = ""
    while time.monotonic() < deadline:
        for container in running.find(client, new.name):
            if container.status not in ("created", "running"):
                raise CellblockError(
                    f"cluster {new.name}: container {container.name} ended ({container.status})",
                    hint="its last lines are above; `build.py doctor` checks this machine",
                )
        waiting_for = _missing(client, new, resume)
        if not waiting_for:
            return
        time.sleep(_POLL_S)
    raise CellblockError(
        f"cluster {new.name}: after {READY_S:.0f} s, still waiting for {waiting_for}",
        hint="the containers' last lines are above",
    )


def _missing(client: docker.DockerClient, new: state.ClusterState, resume: bool) -> str:
    """What the cluster still lacks to be ready; empty when nothing."""
    nodes = running.nodes(client, new.name)
    if not nodes:
        return "slurmctld and its workers"
    excused: set[str] = set()
    if resume and any(node.state not in SERVING for node in nodes):
        resume_ours(client, new.name)
        states = node_states(client, new.name)
        excused = {name for name, node in states.items() if node.drains and not node.ours and node.answers}
    serving = {node.name for node in nodes if node.state in SERVING} | excused
    if not serving.issuperset(new.nodes):
        shown = "; ".join(f"{node.name} is {node.state}" for node in nodes)
        return f"{len(new.nodes)} workers: {shown}"
    # sshd writes it once it listens.
    if not running.succeeds(client, new.name, "login", ["test", "-s", "/run/sshd.pid"]):
        return "sshd on login"
    for host in new.rest_ports:
        if not running.succeeds(client, new.name, host, _REST_LISTENS):
            return f"slurmrestd on {host}"
    return ""
