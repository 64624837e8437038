# SPDX-License-Identifier: Apache-2.0
"""Waits until a cluster takes jobs, with a bound, and says what it still lacks."""

from __future__ import annotations

import re
import time
from datetime import datetime

import docker

from cellblock.cluster import running, state
from cellblock.cluster.containers import container_name
from cellblock.cluster.draining import node_states, resume_ours
from cellblock.cluster.model import SERVING
from cellblock.errors import CellblockError

# Seconds from the containers' start until all workers take jobs; two seconds is usual. The
# entrypoints give up after 60 by themselves, with a better message.
READY_S = 75.0
_POLL_S = 0.1
# From inside; bash is essential.
_REST_LISTENS = ["bash", "-c", ": < /dev/tcp/127.0.0.1/6820"]
# Seconds and zone of the engines' times, whose nanoseconds Python 3.10 does not read.
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)$")
# For a node of which slurmctld does not say when its slurmd started.
_EVER = 1 << 62


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
    if late := sorted(_not_registered(client, new)):
        return f"slurmd on {', '.join(late)}"
    # sshd writes it once it listens.
    if not running.succeeds(client, new.name, "login", ["test", "-s", "/run/sshd.pid"]):
        return "sshd on login"
    for host in new.rest_ports:
        if not running.succeeds(client, new.name, host, _REST_LISTENS):
            return f"slurmrestd on {host}"
    return ""


def _not_registered(client: docker.DockerClient, new: state.ClusterState) -> set[str]:
    """Workers whose slurmd slurmctld knows from before their container's start alone.

    For slurmctld, a node whose slurmd ended goes on serving for five minutes. What it sends to such a node is
    lost, and so is what slurmd sends while slurmctld reads its configuration: seen to cost three minutes.
    """
    prefix = container_name(new.name, "")
    started = {
        (one.name or "").removeprefix(prefix): one.attrs.get("State", {}).get("StartedAt", "")
        for one in running.find(client, new.name)
    }
    known = running.slurmd_starts(client, new.name)
    return {name for name in new.nodes if known.get(name, _EVER) < _seconds(started.get(name, ""))}


def _seconds(time_of_engine: str) -> int:
    """Whole seconds since the epoch of an RFC 3339 time; 0 of another text."""
    found = _TIME.match(time_of_engine)
    return int(datetime.fromisoformat(found[1] + found[2].replace("Z", "+00:00")).timestamp()) if found else 0
