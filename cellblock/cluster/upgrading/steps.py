# SPDX-License-Identifier: Apache-2.0
"""Carries out the steps of an upgrade; each finds out by itself what is left to do of it.

upgrade.py calls them in order. A container that already runs the new image is never touched again: slurmdbd
may be converting the database in it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker

from cellblock.cluster.changing.cluster_plan import PlannedCluster
from cellblock.cluster.changing.draining import wait_for_jobs
from cellblock.cluster.changing.readiness import DATABASE_ANSWERS, SLURMDBD_LISTENS, wait_ready
from cellblock.cluster.configuration import config_files
from cellblock.cluster.definition.names import CONTROLLERS, name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.facts import state, upgrade_record
from cellblock.cluster.facts.upgrade_record import UpgradeRecord
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.upgrade import upgrade as upgrade_jail
from cellblock.jail.volume import history
from cellblock.jail.volume.volume import Volume

_POLL_S = 0.5
# Seconds between two words on a conversion, which has no limit.
_SAY_S = 30.0
# Seconds until the database or slurmctld answers after its container's start. Either may read a long file or
# log of what was not written down; the container goes on, and so does the same command.
_ANSWERS_S = 600.0


@dataclass
class UpgradeSteps:
    """The upgrade `record` of the cluster `known`: `planned` is the cluster with the new release.

    `jail` is the reference of the new jail image. Nodes wait for their jobs for `patience_s` seconds at most;
    0 ends them.
    """

    client: docker.DockerClient
    known: state.ClusterState
    record: UpgradeRecord
    planned: PlannedCluster
    jail: str
    patience_s: float
    events: Events

    def __post_init__(self) -> None:
        """Note what there is before."""
        self.name = self.known.name
        self.folder: Path = state.folder(self.name)
        self.volume = Path(self.known.volume)
        self.records: dict[str, Mapping[str, Any]] = dict(self.known.containers)

    def database(self) -> None:
        """The database's server, while slurmdbd is away: slurmctld keeps what it would tell slurmdbd."""
        if "database" not in self.records or self._is_new("database"):
            return
        if not self._is_new("accounting") and "accounting" in containers.alive(self.client, self.name):
            with self.events.step("cluster", "stop slurmdbd"):
                containers.stop_one(self.client, self.name, "accounting")
        self._replace("database")
        self._wait_for("database", DATABASE_ANSWERS, "the database")

    def accounting(self) -> None:
        """slurmdbd, which converts the database. That takes as long as it takes: nothing ends it."""
        if "accounting" not in self.records:
            return
        self._replace("accounting")
        with self.events.step("cluster", "wait for slurmdbd, which converts the database"):
            started = said = time.monotonic()
            while not containers.succeeds(self.client, self.name, "accounting", SLURMDBD_LISTENS):
                self._refuse_ended("accounting")
                if time.monotonic() - said >= _SAY_S:
                    said = time.monotonic()
                    self.events.info(
                        f"cluster: slurmdbd has been converting the database for {said - started:.0f} s; it "
                        "has no limit, and goes on when this command ends"
                    )
                time.sleep(_POLL_S)

    def controller(self) -> None:
        """slurmctld, with the configuration of before: slurmds and commands of before read it, too.

        A second one is away until the end: with two releases, neither could act in the other's place.
        """
        first, second = CONTROLLERS
        if second in containers.alive(self.client, self.name) and not self._is_new(second):
            with self.events.step("cluster", f"stop {second}"):
                containers.stop_one(self.client, self.name, second)
        self._replace(first)
        self._wait_for("controller", ("scontrol", "ping"), "slurmctld")

    def jobs(self) -> None:
        """Wait until no job uses the jail: its C library changes, and slurmstepds end with their container.

        Raises CellblockError when some do after the time: the nodes then serve again, as they were.
        """
        alive = containers.alive(self.client, self.name)
        hosts = [host for host in self._hosts("worker") if host in alive and not self._is_new(host)]
        if not hosts:
            return
        hint = (
            f"the cluster runs: slurmctld and slurmdbd are of Slurm {self.record.new_release}, "
            f"nodes and commands of {self.record.old_release}, as Slurm allows. `{self.record.command}` "
            "later goes on; with `--wait 2h` it waits longer, with `--wait 0` it ends these jobs and "
            "queues again those that can be"
        )
        wait_for_jobs(self.client, self.name, hosts, self.folder, self.patience_s, hint, self.events)

    def volume_of_jail(self) -> None:
        """The jail, while nothing runs in it."""
        if self.record.jail_done:
            return
        alive = containers.alive(self.client, self.name)
        for host in (*self._hosts("login"), *self._hosts("worker")):
            if host in alive and not self._is_new(host):
                with self.events.step("cluster", f"stop {host}"):
                    containers.stop_one(self.client, self.name, host)
        done = upgrade_jail(self.jail, self.volume, self.events, drained=True)
        self.events.info(f"jail: {len(done.plan.actions)} changes; what users made stays")
        self.record = replace(self.record, jail_done=True)
        upgrade_record.write(self.record)

    def configuration(self) -> None:
        """The configuration of the new release, now that only daemons of it read it."""
        new = self.planned.target
        new.make_secrets(self.folder)
        if config_files.read(self.folder / "config") != new.texts:
            config_files.write(self.folder / "config", new.texts)
        with self.events.step("cluster", "start slurmctld anew"):
            containers.restart(self.client, self.name, "controller")
        self._wait_for("controller", ("scontrol", "ping"), "slurmctld")

    def others(self) -> None:
        """What is left; then the cluster is of the new release."""
        for role in ("controller", "worker", "login", "rest", "metrics"):
            for host in self._hosts(role):
                self._replace(host)
        with self.events.step("cluster", "wait for Slurm"):
            wait_ready(self.client, self.planned.target.state, resume=True)
        state.write(self.planned.target.state)

    def _hosts(self, role: str) -> list[str]:
        return [host for host, one in self.planned.target.records.items() if one["role"] == role]

    def _is_new(self, host: str) -> bool:
        """Whether the host's container runs, of the new image."""
        container = containers.by_host(self.client, self.name).get(host)
        if container is None or container.status != "running":
            return False
        image = str(container.attrs["Image"]).removeprefix("sha256:")
        return image == str(self.planned.target.records[host]["image"]).removeprefix("sha256:")

    def _replace(self, host: str) -> None:
        """A container of the new image in place of the host's; it is recorded in any case."""
        if not self._is_new(host):
            with self.events.step("cluster", f"start {host} with Slurm {self.record.new_release}"):
                container = self.planned.target.containers[host]
                place = self.record.addresses.get(host, "")
                containers.replace(self.client, self.name, self.known.engine, container, place)
        self.records[host] = self.planned.target.records[host]
        state.write(replace(self.known, containers={name: dict(one) for name, one in self.records.items()}))

    def _wait_for(self, host: str, command: tuple[str, ...], what: str) -> None:
        deadline = time.monotonic() + _ANSWERS_S
        while not containers.succeeds(self.client, self.name, host, command):
            self._refuse_ended(host)
            if time.monotonic() >= deadline:
                raise CellblockError(
                    f"cluster {self.name}: {what} does not answer after {_ANSWERS_S:.0f} s; it goes on",
                    hint=f"`build.py logs {host}{name_option(self.name)}` shows what it does; "
                    f"`{self.record.command}` goes on",
                )
            time.sleep(_POLL_S)

    def _refuse_ended(self, host: str) -> None:
        """Raise CellblockError when a container of the cluster ended."""
        container = containers.by_host(self.client, self.name).get(host)
        if container is not None and container.status in ("created", "running"):
            return
        raise CellblockError(
            f"cluster {self.name}: container {host} ended{containers.last_lines(self.client, self.name)}",
            hint=f"its last lines are above; `{self.record.command}` starts it again, "
            f"`{self.record.back_command}` takes the cluster back",
        )


def last_of_history(volume: Path) -> int:
    """The number of the last entry in the jail's history; 0 when there is none."""
    return max((one.number for one in history.read(Volume(volume))), default=0)
