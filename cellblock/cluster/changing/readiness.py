# SPDX-License-Identifier: Apache-2.0
"""Waits until a cluster's services answer and its nodes take jobs, or says what is missing.

Starting, changing, upgrading and restoring a cluster end with it.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Mapping

import docker
from docker.models.containers import Container as Running

from cellblock.cluster.changing.draining import node_states, resume_ours, update
from cellblock.cluster.changing.release_check import is_converting
from cellblock.cluster.definition.model import SERVING
from cellblock.cluster.definition.names import CONTROLLERS
from cellblock.cluster.engine import containers
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError
from cellblock.text.rfc3339 import seconds

# Seconds from the containers' start until all workers take jobs; two seconds is usual. The
# entrypoints give up after 60 by themselves, with a better message.
READY_S = 75.0
_POLL_S = 0.1
# From inside; bash is essential.
_REST_LISTENS = ["bash", "-c", ": < /dev/tcp/127.0.0.1/6820"]
SLURMDBD_LISTENS = ("bash", "-c", ": < /dev/tcp/127.0.0.1/6819")
"""Asks, inside its container, whether slurmdbd listens."""
DATABASE_ANSWERS = ("mariadb", "-e", "SELECT 1")
"""Asks, inside its container, whether the cluster's own database answers."""
_SLURMDBD = "slurmdbd"


def wait_ready(client: docker.DockerClient, new: state.ClusterState, *, resume: bool = False) -> None:
    """Wait until all containers run, all nodes take jobs, and sshd, slurmrestd and slurmdbd listen.

    `resume` gives nodes that `up` drained back to service, and waits for none that an administrator drained.
    Raises CellblockError, naming what is missing and with the containers' last lines, after READY_S seconds
    or when a container ends.
    """
    deadline = time.monotonic() + READY_S
    waiting_for = ""
    while time.monotonic() < deadline:
        by_host = containers.by_host(client, new.name)
        for container in by_host.values():
            if container.status not in ("created", "running"):
                raise CellblockError(
                    f"cluster {new.name}: container {container.name} ended ({container.status})"
                    f"{containers.last_lines(client, new.name)}",
                    hint="its last lines are above; `build.py doctor` checks this machine",
                )
        waiting_for = _missing(client, new, by_host, resume)
        if not waiting_for:
            return
        if waiting_for == _SLURMDBD and is_converting(client, new.name):
            # That takes as long as it takes, and who gives up here may end it.
            deadline = time.monotonic() + READY_S
        time.sleep(_POLL_S)
    raise CellblockError(
        f"cluster {new.name}: after {READY_S:.0f} s, still waiting for {waiting_for}"
        f"{containers.last_lines(client, new.name)}",
        hint="the containers' last lines are above",
    )


def _missing(
    client: docker.DockerClient,
    new: state.ClusterState,
    by_host: Mapping[str, Running],
    resume: bool,
) -> str:
    """What the cluster still lacks to be ready; empty when nothing."""
    first, second = CONTROLLERS
    # The second one answers until it gives its work back, and then nobody does for half a minute.
    if second in new.containers and state.acting_controller(new.name) != first:
        return f"slurmctld on {first}"
    try:
        return _missing_nodes(client, new, by_host, resume) or _missing_services(client, new)
    except CellblockError as error:
        return f"slurmctld: {error}"


def _missing_nodes(
    client: docker.DockerClient,
    new: state.ClusterState,
    by_host: Mapping[str, Running],
    resume: bool,
) -> str:
    # Of its own nodes alone: a cluster may know thousands of others.
    nodes = containers.nodes(client, new.name, new.nodes)
    if not nodes:
        return "slurmctld and its workers"
    records = containers.node_records(client, new.name, new.nodes)
    _readdress(client, new, by_host, records)
    excused: set[str] = set()
    if resume and any(node.state not in SERVING for node in nodes):
        resume_ours(client, new.name)
        states = node_states(client, new.name)
        excused = {name for name, node in states.items() if node.drains and not node.ours and node.answers}
    serving = {node.name for node in nodes if node.state in SERVING} | excused
    if not serving.issuperset(new.nodes):
        shown = "; ".join(f"{node.name} is {node.state}" for node in nodes)
        return f"{len(new.nodes)} workers: {shown}"
    late = sorted(_not_registered(new, by_host, records))
    return f"slurmd on {', '.join(late)}" if late else ""


def _missing_services(client: docker.DockerClient, new: state.ClusterState) -> str:
    # sshd writes it once it listens.
    if not containers.succeeds(client, new.name, "login", ["test", "-s", "/run/sshd.pid"]):
        return "sshd on login"
    for host in new.rest_ports:
        if not containers.succeeds(client, new.name, host, _REST_LISTENS):
            return f"slurmrestd on {host}"
    if "accounting" in new.containers and not containers.succeeds(
        client, new.name, "accounting", SLURMDBD_LISTENS
    ):
        return _SLURMDBD
    return ""


def _readdress(
    client: docker.DockerClient,
    new: state.ClusterState,
    by_host: Mapping[str, Running],
    records: Mapping[str, containers.NodeRecord],
) -> None:
    """Tell slurmctld where nodes are that it remembers from the containers' last start.

    Slurm 22.05 goes on with the address of a node's first registration, where by now may be another's.
    """
    for node in records.keys() & by_host.keys() & {*new.nodes}:
        address = containers.address(by_host[node], new.name)
        known = records[node].address
        if address and known != address and _is_address(known):
            update(client, new.name, [node], f"nodeaddr={address}")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _not_registered(
    new: state.ClusterState,
    by_host: Mapping[str, Running],
    records: Mapping[str, containers.NodeRecord],
) -> set[str]:
    """Workers whose slurmd slurmctld knows from before their container's start alone.

    For slurmctld, a node whose slurmd ended goes on serving for five minutes. What it sends to such a node is
    lost, and so is what slurmd sends while slurmctld reads its configuration: seen to cost three minutes.
    """
    late = set()
    for node in records.keys() & by_host.keys() & {*new.nodes}:
        start = records[node].slurmd_start
        began = by_host[node].attrs.get("State", {}).get("StartedAt", "")
        if start is not None and began and start < seconds(began):
            late.add(node)
    return late
