# SPDX-License-Identifier: Apache-2.0
"""Keeps queued jobs that ask for a node by its name, while slurmctld forgets the node and registers it again.

Slurm ends such jobs when it forgets the node (seen in 24.11: NODE_FAIL). So the jobs are held without the
name until the node is back. They are recorded on disk first, so that after an interruption the next `up`
releases them with the name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import docker

from cellblock.cluster.changing.many_jobs import change_each, expand_nodes
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine import containers
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.files import durable

_FILE = "waiting-jobs.json"


@dataclass(frozen=True)
class _Waiting:
    """A job, the nodes that it asks for, and whether somebody held it already."""

    job: str
    nodes: str
    held: bool


class WaitingJobs:
    """The jobs of a cluster that are set aside; `folder` is the cluster's."""

    def __init__(self, client: docker.DockerClient, cluster: str, folder: Path) -> None:
        self._client, self._cluster = client, cluster
        self._path = folder / _FILE

    def set_aside(self, nodes: Collection[str]) -> None:
        """Hold the jobs that wait for one of `nodes` by name, and take the names from them.

        slurmctld is asked for its jobs once, however many nodes, and told of many jobs with each command.
        """
        kept = self._read()
        known = {one.job for one in kept}
        new = [one for one in self._asking_for(nodes) if one.job not in known]
        if not new:
            return
        durable.write(self._path, json.dumps([asdict(one) for one in (*kept, *new)]), mode=0o600)
        self._each("hold", [one.job for one in new if not one.held])
        failed = self._each("update", [one.job for one in new], "reqnodelist=")
        # One that has begun or ended meanwhile is no fault.
        if still := (failed and {one.job for one in self._asking_for(nodes)} & failed):
            raise CellblockError(
                f"cluster {self._cluster}: jobs that wait for {', '.join(sorted(nodes)[:4])} by name cannot "
                f"be given other nodes: {', '.join(sorted(still)[:6])}",
                hint=f"`scontrol update jobid={min(still)} reqnodelist=` in `build.py shell "
                f"--admin{name_option(self._cluster)}` says why",
            )

    def give_back(self) -> None:
        """Give their nodes back to jobs whose nodes are all there; release those that nobody else held."""
        kept = self._read()
        if not kept:
            return
        # A job that was cancelled meanwhile has nothing to be given.
        there = self._pending()
        by_nodes: dict[str, list[_Waiting]] = {}
        for one in kept:
            if one.job in there:
                by_nodes.setdefault(one.nodes, []).append(one)
        left = []
        for nodes, jobs in by_nodes.items():
            # It fails while another of their nodes is not back yet.
            failed = self._each("update", [one.job for one in jobs], f"reqnodelist={nodes}")
            failed |= self._each(
                "release", [one.job for one in jobs if not one.held and one.job not in failed]
            )
            left += [one for one in jobs if one.job in failed]
        # One that has begun or ended meanwhile is no fault.
        still = self._pending() if left else set()
        left = [one for one in left if one.job in still]
        if left:
            durable.write(self._path, json.dumps([asdict(one) for one in left]), mode=0o600)
        else:
            self._path.unlink(missing_ok=True)

    def leave(self, events: Events) -> None:
        """Say which jobs stay held, because a node that they ask for is gone for good."""
        for one in self._read():
            events.warning(
                f"job {one.job} of cluster {self._cluster} asks for {one.nodes}, which is gone: it is held; "
                f"`scontrol update jobid={one.job} reqnodelist=NODES` and `scontrol release {one.job}` let "
                f"it run elsewhere (in `build.py shell --admin{name_option(self._cluster)}`)"
            )
        self._path.unlink(missing_ok=True)

    def _read(self) -> list[_Waiting]:
        try:
            return [_Waiting(**one) for one in json.loads(self._path.read_text(encoding="utf-8"))]
        except FileNotFoundError:
            return []

    def _asking_for(self, nodes: Collection[str]) -> list[_Waiting]:
        # %n: the nodes that were asked for; %r: why it waits.
        asked = ["squeue", "--noheader", "--all", "--array", "--states=pending", "--format=%i|%n|%r"]
        lines = containers.execute(self._client, self._cluster, "controller", asked).splitlines()
        jobs = [fields for line in lines if len(fields := line.split("|")) == 3 and fields[1]]
        expanded = expand_nodes(self._client, self._cluster, {fields[1] for fields in jobs})
        return [
            _Waiting(job, names, why.startswith("JobHeld"))
            for job, names, why in jobs
            if not expanded[names].isdisjoint(nodes)
        ]

    def _pending(self) -> set[str]:
        asked = ["squeue", "--noheader", "--all", "--array", "--states=pending", "--format=%i"]
        return set(containers.execute(self._client, self._cluster, "controller", asked).split())

    def _each(self, verb: str, jobs: Sequence[str], change: str = "") -> set[str]:
        return change_each(self._client, self._cluster, verb, jobs, change)
