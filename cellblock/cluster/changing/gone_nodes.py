# SPDX-License-Identifier: Apache-2.0
"""Removes nodes from slurmctld's state that the cluster file no longer has.

Nodes that register by themselves stay in slurmctld's state. After a restart slurmctld takes such a node for
idle, even if the cluster file no longer has it: jobs go there and hang. Slurm 22.05, which cannot look up its
address, takes all other nodes for dead as well (seen after four minutes).
"""

from __future__ import annotations

import time

import docker

from cellblock.cluster.changing.draining import MARK, update
from cellblock.cluster.changing.waiting_jobs import WaitingJobs
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.facts.state import ClusterState
from cellblock.events import Events

# Seconds until the jobs of a node that is down are off it.
_OFF_S = 15.0
_POLL_S = 0.2


def forget_gone(client: docker.DockerClient, new: ClusterState, waiting: WaitingJobs, events: Events) -> None:
    """Delete the nodes that are not the cluster's. Their jobs end or are queued again; waiting ones stay.

    One that slurmctld does not give up stays down, and a warning says so. Raises CellblockError when
    slurmctld does not answer.
    """
    # sinfo does not show a node that is in no partition.
    gone = sorted(containers.node_names(client, new.name) - {*new.nodes, "login"})
    if not gone:
        return
    # Ends the jobs that slurmctld believes to run there, or queues them again.
    update(client, new.name, gone, "state=down", f"reason={MARK} is gone")
    deadline = time.monotonic() + _OFF_S
    waiting.set_aside(gone)
    # One command for all: it forgets those that it can.
    while not containers.succeeds(
        client, new.name, "controller", ["scontrol", "delete", f"nodename={','.join(gone)}"]
    ):
        there = containers.node_names(client, new.name)
        gone = [node for node in gone if node in there]
        if not gone:
            break
        if time.monotonic() >= deadline:
            shown = ", ".join(gone[:4]) + (f" and {len(gone) - 4} more" if len(gone) > 4 else "")
            events.warning(
                f"slurmctld of cluster {new.name} keeps {shown}, which are gone, as nodes that are down: "
                f"`scontrol delete nodename={gone[0]}` in `build.py shell --admin{name_option(new.name)}` "
                "says why"
            )
            break
        time.sleep(_POLL_S)
    waiting.give_back()
    waiting.leave(events)
