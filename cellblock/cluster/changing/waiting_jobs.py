# SPDX-License-Identifier: Apache-2.0
"""Jobs that wait for a node by its name, while slurmctld forgets the node and gets to know it again.

Slurm ends them when it forgets the node (seen in 24.11: NODE_FAIL). So they are held, without the name, until
the node is back. They are recorded on disk first, so that after an interruption the next `up`
gives them back.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import docker

from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine import running
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

    def set_aside(self, node: str) -> None:
        """Hold the jobs that wait for `node` by name, and take the name from them."""
        kept = self._read()
        known = {one.job for one in kept}
        new = [one for one in self._asking_for(node) if one.job not in known]
        if not new:
            return
        durable.write(self._path, json.dumps([asdict(one) for one in (*kept, *new)]), mode=0o600)
        for one in new:
            if not one.held:
                self._scontrol("hold", one.job)
            self._scontrol("update", f"jobid={one.job}", "reqnodelist=")

    def give_back(self) -> None:
        """Give their nodes back to jobs whose nodes are all there; release those that nobody else held."""
        kept = self._read()
        left = []
        for one in kept:
            # A job that was cancelled meanwhile has nothing to be given.
            if self._is_there(one.job):
                try:
                    self._scontrol("update", f"jobid={one.job}", f"reqnodelist={one.nodes}")
                except CellblockError:
                    left.append(one)  # another of its nodes is not back yet
                    continue
                if not one.held:
                    self._scontrol("release", one.job)
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

    def _asking_for(self, node: str) -> list[_Waiting]:
        # %n: the nodes that were asked for; %r: why it waits.
        asked = ["squeue", "--noheader", "--all", "--array", "--states=pending", "--format=%i|%n|%r"]
        found = []
        for line in running.execute(self._client, self._cluster, "controller", asked).splitlines():
            fields = line.split("|")
            if len(fields) == 3 and fields[1] and node in self._expanded(fields[1]):
                found.append(_Waiting(fields[0], fields[1], fields[2].startswith("JobHeld")))
        return found

    def _expanded(self, nodes: str) -> list[str]:
        asked = ["scontrol", "show", "hostnames", nodes]
        return running.execute(self._client, self._cluster, "controller", asked).split()

    def _is_there(self, job: str) -> bool:
        asked = ["squeue", "--noheader", "--all", "--states=pending", f"--jobs={job}", "--format=%i"]
        try:
            return bool(running.execute(self._client, self._cluster, "controller", asked).strip())
        except CellblockError:
            return False  # squeue fails for a job that is gone

    def _scontrol(self, *command: str) -> None:
        running.execute(self._client, self._cluster, "controller", ["scontrol", *command])
