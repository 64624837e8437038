# SPDX-License-Identifier: Apache-2.0
"""Carries out the changes of a running cluster, with the least harm to its jobs; changes.py lists them.

Each step is recorded in the cluster's state when it is done: after an interruption the next `up` goes on.
Configuration that slurmctld refuses is taken back; nodes whose jobs do not end in time are not changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException

from cellblock.cluster.changing.changes import Changes, removed_partitions
from cellblock.cluster.changing.draining import Draining
from cellblock.cluster.changing.readiness import wait_ready
from cellblock.cluster.changing.waiting_jobs import WaitingJobs
from cellblock.cluster.configuration import config_files, secrets
from cellblock.cluster.definition.names import CONTROLLERS, name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.container_specs import Container
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError
from cellblock.events import Events

# Seconds for `scontrol reconfigure`: slurmctld 24.11 waits for the end of each connection, however idle, and
# answers nobody till then (measured: up to 99 s).
_RECONFIGURE_S = 240


@dataclass(frozen=True)
class Target:
    """What a cluster is to be: its containers by host name, their records, and the files below config/.

    `password` is slurmdbd's for a database that is not the cluster's own.
    """

    state: state.ClusterState
    containers: Mapping[str, Container]
    records: Mapping[str, Mapping[str, Any]]
    texts: Mapping[str, str]
    password: bytes | None = field(default=None, repr=False)

    def make_secrets(self, folder: Path) -> None:
        """Make what is missing of its secrets, in the folder of the cluster. Raises CellblockError."""
        secrets.make_secrets(
            folder / "secrets",
            self.state.name,
            tokens=bool(self.state.rest_ports),
            password=self.password,
            auth=self.state.auth,
        )


@dataclass
class ClusterChange:
    """A change of the cluster `known` into `target`. `folder` is the cluster's.

    Nodes that start anew are drained first, for `patience_s` seconds at most; 0 ends their jobs.
    """

    client: docker.DockerClient
    known: state.ClusterState
    target: Target
    changes: Changes
    folder: Path
    patience_s: float
    events: Events

    def __post_init__(self) -> None:
        """Note what there is before."""
        self.records: dict[str, Mapping[str, Any]] = dict(self.known.containers)
        self.alive = containers.alive(self.client, self.known.name)
        self.before = config_files.read(self.folder / "config")

    def apply(self) -> None:
        """Change the cluster.

        Raises CellblockError when slurmctld does not take the configuration, when a container does not start,
        or when jobs did not end in time. The cluster then runs on.
        """
        try:
            self._apply()
        except DockerException as error:
            raise CellblockError(
                f"cluster {self.known.name} runs, but is not yet what its file says: {error}",
                hint=f"`build.py status{name_option(self.known.name)}` shows what runs; the same `up` again "
                "goes on",
            ) from error

    def _apply(self) -> None:
        """All steps, in the order in which each finds what it needs."""
        again = [host for host in self._workers(self.changes.replaced) if host in self.alive]
        gone = self._workers(self.changes.removed)
        waiting = WaitingJobs(self.client, self.known.name, self.folder)
        hosts, later = [*again, *gone], state.up_command(self.known.name, self.target.state.options)
        with Draining(self.client, self.known.name, hosts, waiting, self.events, later) as draining:
            if self.patience_s == 0:
                draining.end_jobs()
            other = [host for host in again if host in self.changes.other]
            self._empty(draining, other, self._end)
            self._files()
            for role in ("database", "accounting", "rest", "metrics"):
                self._containers(role)
            self._controller()
            for host in self._workers((*self.changes.added, *self.changes.replaced)):
                if host not in again or host in other:
                    self._replace(host)
            for host in other:
                draining.is_back(host)
            self._empty(draining, [host for host in again if host not in other], self._start_anew)
            self._empty(draining, gone, self._end)
        self._containers("login")
        for host in self.changes.removed:
            if host in self.records:
                self._remove(host)
        waiting.give_back()
        waiting.leave(self.events)
        with self.events.step("cluster", "wait for Slurm"):
            wait_ready(self.client, self.target.state, resume=True)
        self._record(done=True)

    def _workers(self, hosts: Iterable[str]) -> list[str]:
        return [host for host in hosts if self._role(host) == "worker"]

    def _role(self, host: str) -> str:
        return str((self.target.records.get(host) or self.records[host])["role"])

    def _record(self, *, done: bool = False) -> None:
        """Remember what is there; nodes that are to go are the cluster's until they are gone."""
        left = () if done else (node for node in self.known.nodes if node in self.records)
        nodes = list(dict.fromkeys([*self.target.state.nodes, *left]))
        records = {host: dict(one) for host, one in self.records.items()}
        state.write(replace(self.target.state, containers=records, nodes=nodes))

    # Configuration.

    def _files(self) -> None:
        """Write the files; a partition whose jobs are not over takes no new ones and is hidden."""
        texts = dict(self.target.texts)
        gone = removed_partitions(self.before, texts)
        lines = []
        for partition, line in gone.items():
            asked = ["squeue", "--noheader", "--all", f"--partition={partition}", "--format=%i"]
            jobs = containers.execute(self.client, self.known.name, "controller", asked).split()
            if jobs:
                shown = ", ".join(jobs[:4])
                self.events.warning(
                    f"partition {partition} is no longer in the file, but has {len(jobs)} jobs ({shown}): "
                    "it is hidden and takes no new ones; the first `up` after their end removes it"
                )
                lines.append(f"{re.sub(r' (State|Default|Hidden)=[^ ]+', '', line)} State=DRAIN Hidden=YES")
        if lines:
            old = self.before.get("slurm/slurm.conf", "")
            sets = [line for line in old.splitlines() if line.startswith("NodeSet=")]
            new = texts["slurm/slurm.conf"]
            kept = [line for line in sets if line not in new.splitlines()]
            texts["slurm/slurm.conf"] = new.rstrip("\n") + "\n" + "\n".join([*kept, *lines]) + "\n"
        config_files.write(self.folder / "config", texts)

    def _controller(self) -> None:
        """Have slurmctld read the files: by a new container, a restart, or a word to it.

        Of two, the second first: then it knows the files when it acts in the place of the first.
        """
        anew = self.changes.slurm and any(one.effect == "restart" for one in self.changes.changes)
        for host in reversed(CONTROLLERS):
            if host in (*self.changes.added, *self.changes.replaced):
                self._replace(host)
            elif anew and host in self.alive and host in self.target.containers:
                with self.events.step("cluster", "start slurmctld anew"):
                    containers.restart(self.client, self.known.name, host)
        if not self.changes.slurm:
            return
        with self.events.step("cluster", "have Slurm read its configuration"):
            self._wait_for_slurmctld()
            try:
                self._reconfigure()
            except CellblockError as error:
                config_files.write(self.folder / "config", self.before)
                self._reconfigure()
                raise CellblockError(
                    f"cluster {self.known.name}: slurmctld does not take the new configuration, and has the "
                    f"one of before again: {error.message}",
                    hint="correct the cluster file, above all `slurm.extra` and `partitions[].options`",
                ) from error

    def _wait_for_slurmctld(self) -> None:
        ping = ["scontrol", "ping"]
        if not containers.succeeds_within(self.client, self.known.name, "controller", ping, _RECONFIGURE_S):
            raise CellblockError(
                f"cluster {self.known.name}: slurmctld does not answer",
                hint=f"`build.py status{name_option(self.known.name)}` shows what runs",
            )

    def _reconfigure(self) -> None:
        deadline = time.monotonic() + _RECONFIGURE_S
        while True:
            try:
                containers.execute(self.client, self.known.name, "controller", ["scontrol", "reconfigure"])
                return
            except CellblockError as error:
                if "timed out" not in error.message.lower() or time.monotonic() >= deadline:
                    raise
                self._wait_for_slurmctld()

    # Containers.

    def _containers(self, role: str) -> None:
        """Start those of a role that are new or differ."""
        for host in (*self.changes.added, *self.changes.replaced):
            if self._role(host) == role:
                self._replace(host)

    def _replace(self, host: str) -> None:
        """A container in place of the one with its name, if there is one, at the same address."""
        with self.events.step("cluster", f"start {host}"):
            container = self.target.containers[host]
            containers.replace(self.client, self.known.name, self.known.engine, container)
        self.records[host] = self.target.records[host]
        self._record()

    def _remove(self, host: str) -> None:
        containers.remove_one(self.client, self.known.name, host)
        self.records.pop(host, None)
        self._record()

    # Nodes.

    def _empty(self, draining: Draining, hosts: list[str], then: Callable[[str, Draining], None]) -> None:
        """Do something with each node when its jobs have ended."""
        if hosts:
            with self.events.step("cluster", f"wait for jobs on {', '.join(hosts[:4])}"):
                for host in draining.as_they_empty(hosts, self.patience_s):
                    then(host, draining)

    def _end(self, host: str, draining: Draining) -> None:
        """End a node, and have slurmctld forget it."""
        self._remove(host)
        draining.forget(host)

    def _start_anew(self, host: str, draining: Draining) -> None:
        if host in self.changes.forgotten:
            # Slurm keeps the memory and processors that a node registered with first.
            self._end(host, draining)
        self._replace(host)
        draining.is_back(host)
