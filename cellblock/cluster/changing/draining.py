# SPDX-License-Identifier: Apache-2.0
"""Drains nodes, so that `up`, `upgrade` and `rotate` can change them once their jobs have ended.

It never undoes an administrator's own drain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import docker

from cellblock.cluster.changing.many_jobs import expand_nodes, requeue_each
from cellblock.cluster.changing.waiting_jobs import WaitingJobs
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine import containers
from cellblock.errors import CellblockError
from cellblock.events import Events

REASON = "[cellblock:up] starts anew when its jobs have ended"
"""Begins with what marks a drain as ours; health.md has the same form."""

MARK = "[cellblock:up]"
_POLL_S = 0.3
# Seconds between two words on what is waited for.
_SAY_S = 30.0
# Seconds until Slurm has ended a job: KillWait is 30, and a message that is lost is sent again after 60.
_END_S = 180.0
# Seconds until a node that was started has registered; its entrypoint gives up after 60.
_KNOWN_S = 75.0


@dataclass(frozen=True)
class NodeState:
    """A node in sinfo's words: its state in the long form without flags, and the reason for it.

    `busy`: whether jobs have processors of it. Of the state, 22.05 says "allocated" of idle nodes at times.
    """

    state: str
    reason: str
    answers: bool
    busy: bool

    @property
    def drains(self) -> bool:
        """Whether it takes no new jobs because somebody said so."""
        return self.state in ("drained", "draining", "drain", "inval")

    @property
    def ours(self) -> bool:
        """Whether that was `up`."""
        return self.reason.startswith(MARK)


def node_states(client: docker.DockerClient, cluster: str) -> dict[str, NodeState]:
    """All nodes by name. Raises CellblockError when slurmctld does not answer."""
    # %C: processors that are allocated, idle, other, and all.
    asked = ["sinfo", "--noheader", "--all", "--Node", "--format=%N|%T|%C|%E"]
    states = {}
    for line in containers.execute(client, cluster, "controller", asked).splitlines():
        fields = line.split("|", 3)
        if len(fields) == 4:
            name, what, processors, reason = fields
            word = what.rstrip("*~#!%$@^-+").lower()
            states[name] = NodeState(word, reason, "*" not in what, not processors.startswith("0/"))
    return states


def resume_ours(client: docker.DockerClient, cluster: str) -> None:
    """Give back to service the nodes that answer and that `up` drained."""
    nodes = [
        name
        for name, node in node_states(client, cluster).items()
        if node.drains and node.ours and node.answers
    ]
    if nodes:
        update(client, cluster, nodes, "state=resume")


def update(client: docker.DockerClient, cluster: str, nodes: Sequence[str], *what: str) -> None:
    """`scontrol update` of nodes."""
    containers.execute(
        client, cluster, "controller", ["scontrol", "update", f"nodename={','.join(nodes)}", *what]
    )


class Draining:
    """Nodes that are drained as long as this is entered; those that are left then go back to service."""

    def __init__(
        self,
        client: docker.DockerClient,
        cluster: str,
        nodes: Sequence[str],
        waiting: WaitingJobs,
        events: Events,
        again: str = "",
    ) -> None:
        self._client, self._cluster, self._events = client, cluster, events
        # The command that goes on where a wait was too short.
        self._again = again
        self._waiting = waiting
        self._left = list(nodes)
        self._theirs: dict[str, str] = {}

    def __enter__(self) -> Draining:
        """Drain the nodes."""
        states = node_states(self._client, self._cluster)
        known = [node for node in self._left if node in states]
        self._theirs = {
            node: states[node].reason for node in known if states[node].drains and not states[node].ours
        }
        mine = [node for node in known if node not in self._theirs]
        if mine:
            update(self._client, self._cluster, mine, "state=drain", f"reason={REASON}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what was not started anew: a failure or Ctrl-C costs no node."""
        mine = [node for node in self._left if node not in self._theirs]
        if mine:
            with suppress(CellblockError):
                update(self._client, self._cluster, mine, "state=resume")

    def end_jobs(self) -> None:
        """End the nodes' jobs; those that can be are queued again."""
        requeue_each(self._client, self._cluster, self._job_ids(self._left))

    def forget(self, node: str) -> None:
        """Have slurmctld forget a node that has ended. Of jobs that wait for it by name none is lost."""
        if node in node_states(self._client, self._cluster):
            self._waiting.set_aside([node])
            containers.execute(
                self._client, self._cluster, "controller", ["scontrol", "delete", f"nodename={node}"]
            )

    def is_back(self, node: str) -> None:
        """Wait until slurmctld knows a node that was started; it is drained again if an administrator had.

        Raises CellblockError when it does not get to know it.
        """
        deadline = time.monotonic() + _KNOWN_S
        while node not in (states := node_states(self._client, self._cluster)):
            if time.monotonic() >= deadline:
                raise CellblockError(
                    f"cluster {self._cluster}: {node} was started, and slurmctld does not know it after "
                    f"{_KNOWN_S:.0f} s",
                    hint=f"`build.py up{name_option(self._cluster)}` again starts it once more; "
                    "`build.py doctor` checks this machine",
                )
            time.sleep(_POLL_S)
        if node in self._theirs and not states[node].drains:
            update(self._client, self._cluster, [node], "state=drain", f"reason={self._theirs[node]}")
        self._waiting.give_back()

    def as_they_empty(self, nodes: Sequence[str], patience_s: float) -> Iterator[str]:
        """Each of `nodes` when it runs no job any more.

        Raises CellblockError, naming nodes and jobs, when some do after `patience_s` seconds. 0 means
        that their jobs were ended: that takes Slurm some seconds.
        """
        left = list(nodes)
        deadline = time.monotonic() + (patience_s or _END_S)
        say = time.monotonic() + _SAY_S
        while left:
            asked = time.monotonic()
            states = node_states(self._client, self._cluster)
            free = [node for node in left if node not in states or not states[node].busy]
            # Jobs that are being ended. squeue has slurmctld list all jobs of the cluster to find them.
            ending = self._nodes_with_jobs([node for node in free if node in states])
            pause = max(_POLL_S, time.monotonic() - asked)
            for node in free:
                if node not in ending:
                    yield node
                    left.remove(node)
                    self._left.remove(node)
            if not left:
                return
            if time.monotonic() >= deadline:
                raise self._not_over(left, patience_s or _END_S)
            if time.monotonic() >= say:
                self._events.info(f"cluster: waiting for jobs {self._jobs(left)} on {', '.join(left)}")
                say = time.monotonic() + _SAY_S
            time.sleep(pause)

    def _nodes_with_jobs(self, nodes: Sequence[str]) -> set[str]:
        """Those of `nodes` that have a job, if only one that is being ended."""
        if not nodes:
            return set()
        found = expand_nodes(self._client, self._cluster, set(self._asked_for_jobs(nodes, "%N")))
        return set(nodes) & set().union(*found.values())

    def _job_ids(self, nodes: Sequence[str]) -> list[str]:
        """The jobs on `nodes`, those that are being ended as well; elements of arrays one by one."""
        return list(dict.fromkeys(self._asked_for_jobs(nodes, "%i")))

    def _asked_for_jobs(self, nodes: Sequence[str], field: str) -> list[str]:
        """A field of each job on `nodes`, in squeue's form, by one question to slurmctld."""
        asked = [
            "squeue",
            "--noheader",
            "--all",
            "--array",
            f"--nodelist={','.join(nodes)}",
            f"--format={field}",
        ]
        return containers.execute(self._client, self._cluster, "controller", asked).split()

    def _jobs(self, nodes: Sequence[str]) -> str:
        jobs = self._job_ids(nodes)
        return ", ".join(jobs[:6]) + (" and more" if len(jobs) > 6 else "")

    def _not_over(self, nodes: Sequence[str], patience_s: float) -> CellblockError:
        return CellblockError(
            f"cluster {self._cluster}: after {patience_s:.0f} s, jobs {self._jobs(nodes)} still run on "
            f"{', '.join(nodes)}, which start anew only when their jobs have ended; they go on as they "
            "were",
            hint=f"later {self._again} goes on; with `--wait 2h` it waits longer, with `--wait 0` it ends "
            "these jobs and queues again those that can be",
        )


def wait_for_jobs(
    client: docker.DockerClient,
    cluster: str,
    hosts: Sequence[str],
    folder: Path,
    patience_s: float,
    hint: str,
    events: Events,
) -> None:
    """Drain the nodes `hosts` and wait `patience_s` seconds at most until none has a job; 0 ends the jobs.

    The nodes stay drained; `folder` is the cluster's. Raises CellblockError with `hint` when jobs are left:
    the nodes then serve again, as they do after Ctrl-C.
    """
    waiting = WaitingJobs(client, cluster, folder)
    try:
        with (
            events.step("cluster", f"wait for jobs on {', '.join(hosts[:4])}"),
            Draining(client, cluster, hosts, waiting, events) as draining,
        ):
            if patience_s == 0:
                draining.end_jobs()
            for _ in draining.as_they_empty(hosts, patience_s):
                pass
    except CellblockError as error:
        resume_ours(client, cluster)
        raise CellblockError(error.message, hint=hint) from error
    except BaseException:  # Ctrl-C
        resume_ours(client, cluster)
        raise
