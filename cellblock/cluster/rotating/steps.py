# SPDX-License-Identifier: Apache-2.0
"""Replaces each kind of secret of a running cluster, one method for each; rotation.py calls them.

The key of auth/slurm needs several steps: slurm_auth_key.py has them. Each step can be repeated from its
beginning: containers that ended meanwhile are started. A container that was removed is skipped; `up` makes
it again, with the new secrets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import docker
from docker.errors import DockerException

from cellblock.cluster.changing.draining import resume_ours, wait_for_jobs
from cellblock.cluster.changing.readiness import DATABASE_ANSWERS, SLURMDBD_LISTENS, wait_ready
from cellblock.cluster.changing.release_check import refuse_converting
from cellblock.cluster.configuration import secrets
from cellblock.cluster.definition.names import CONTROLLERS, name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.facts import rotation_record, state
from cellblock.cluster.facts.rotation_record import RotationRecord
from cellblock.cluster.rotating.slurm_auth_key import AuthKeyRotation
from cellblock.errors import CellblockError
from cellblock.events import Events

# Seconds until a daemon that was started answers; one or two are usual, and its entrypoint gives up after 60.
_ANSWERS_S = 75.0
_POLL_S = 0.2
# Containers to end or start at once: the engine serialises most of its work.
_AT_ONCE = 4
# From inside; bash is essential.
_ANSWERS = {
    "accounting": SLURMDBD_LISTENS,
    **dict.fromkeys(CONTROLLERS, ("scontrol", "ping")),
    "database": DATABASE_ANSWERS,
    "login": ("bash", "-c", ": < /dev/tcp/127.0.0.1/22"),
}
# As cellblock-init writes it when the container starts (images/slurm). By rename: sshd reads it at any time.
_AUTHORIZE = """
    set -eu
    file=/etc/ssh/authorized_keys/root
    umask 022
    mkdir -p "${file%/*}"
    printf '%s\\n' "$1" >$file.new
    mv $file.new $file
"""


@dataclass
class RotationSteps:
    """The rotation `record` of the cluster `known`.

    Nodes wait for their jobs for `patience_s` seconds at most; 0 ends them.
    """

    client: docker.DockerClient
    known: state.ClusterState
    record: RotationRecord
    patience_s: float
    events: Events

    def __post_init__(self) -> None:
        """Note where things are."""
        self.name = self.known.name
        self.secrets: Path = state.folder(self.name) / "secrets"

    def rotate_first(self) -> None:
        """Rotate the first secret that is left, and note that it is done.

        Raises CellblockError when a daemon does not come up, jobs did not end in time, or the engine fails.
        """
        secret = self.record.left[0]
        step: dict[rotation_record.Secret, Callable[[], None]] = {
            "tokens": self._tokens,
            "database": self._database,
            "logins": self._logins,
            "hosts": self._hosts,
            "munge": self._munge,
            "slurm": self._slurm,
        }
        try:
            if secret in ("tokens", "database", "munge", "slurm"):
                refuse_converting(self.client, self.name)
            if self.record.phase != "waiting":
                self._start_ended(secret)
            if secret != "munge" and self.record.phase == "waiting":
                self._note("begun")
            step[secret]()
        except (DockerException, OSError) as error:  # requests' errors are OSErrors
            raise CellblockError(
                f"cluster {self.name}: the rotation of {secret} stopped: {error}",
                hint=f"`{self.record.command}` goes on",
            ) from error
        self._done()

    def make_first(self) -> None:
        """Make the first secret that is left anew for a cluster of which nothing runs.

        Raises CellblockError when a file cannot be written.
        """
        self._make()
        self._done()

    def give_back(self) -> None:
        """Have the nodes serve again that a rotation has drained before it was interrupted."""
        if containers.controller(self.client, self.name):
            resume_ours(self.client, self.name)

    def _note(self, phase: rotation_record.Phase) -> None:
        self.record = replace(self.record, phase=phase)
        rotation_record.write(self.record)

    def _done(self) -> None:
        self.record = replace(self.record, left=self.record.left[1:], phase="waiting")
        if self.record.left:
            rotation_record.write(self.record)
        else:
            rotation_record.remove(self.name)

    # The secrets.

    def _make(self) -> None:
        """Make the files of the first secret that is left anew."""
        make: dict[rotation_record.Secret, Callable[[], None]] = {
            "tokens": lambda: secrets.make_jwt_key(self.secrets),
            "database": lambda: secrets.make_password(self.secrets),
            "logins": lambda: secrets.make_login_key(self.secrets, self.name),
            "hosts": lambda: secrets.make_host_keys(self.secrets, self.name),
            "munge": lambda: secrets.make_munge_key(self.secrets),
            "slurm": lambda: secrets.make_slurm_key(self.secrets),
        }
        try:
            make[self.record.left[0]]()
        except OSError as error:
            raise CellblockError(
                f"{error.filename or self.secrets}: cannot be written: {error.strerror}",
                hint=f"make room there (`df -h`), then `{self.record.command}` goes on",
            ) from error

    def _tokens(self) -> None:
        """slurmdbd and slurmctld check tokens, and have read the key when they started."""
        self._make()
        for host in ("accounting", *CONTROLLERS):
            self._start_anew(host)

    def _database(self) -> None:
        """The database takes its user's password from the file when it starts; slurmctld's records wait."""
        self._stop(["accounting"])
        self._make()
        self._start_anew("database")
        self._start_anew("accounting")

    def _logins(self) -> None:
        """sshd reads the keys of who may log in for each login."""
        self._make()
        public = (self.secrets / "login" / "authorized_keys").read_text(encoding="utf-8").strip()
        if "login" in containers.alive(self.client, self.name):
            containers.execute(self.client, self.name, "login", ["sh", "-c", _AUTHORIZE, "sh", public])
        else:
            self._start_anew("login")

    def _hosts(self) -> None:
        """The agent that signs for sshd has the keys from its start, where nobody can give it others."""
        self._make()
        self._start_anew("login")

    def _munge(self) -> None:
        """Who has the old key and who has the new one are strangers: all end, then all start."""
        hosts = self._with_munge_key()
        if self.record.phase == "waiting":
            rotation_record.write(self.record)
            self._drain()
            self._note("begun")
        if self.record.phase == "begun":
            # Who says something goes before who writes it down.
            ordered = [host for host in hosts if host not in (*CONTROLLERS, "accounting")]
            with self.events.step("cluster", "stop all that have munge's key"):
                for some in (ordered, list(CONTROLLERS), ["accounting"]):
                    self._stop(some)
            self._make()
        with self.events.step("cluster", "start them with the new key"):
            self._start(hosts)
        # From here on nodes may take jobs: nothing is ended any more by who goes on.
        self._note("renewed")
        if set(self.known.containers) <= containers.alive(self.client, self.name):
            self._wait_ready()

    def _slurm(self) -> None:
        """All have both keys for a while: nothing ends."""
        AuthKeyRotation(
            self.client, self.known, self.record, self.secrets, self._start_anew, self.events
        ).run(lambda: self._note("renewed"))

    def _wait_ready(self) -> None:
        try:
            with self.events.step("cluster", "wait for Slurm"):
                wait_ready(self.client, self.known, resume=True)
        except CellblockError as error:
            raise CellblockError(
                error.message,
                hint=f"all have the new key of munge; `{self.record.command}` waits again, and "
                f"`build.py status{name_option(self.name)}` shows what runs",
            ) from error

    def _with_munge_key(self) -> list[str]:
        """Hosts that start anew for it; slurmrestd has no key, but knows where slurmctld was before."""
        return [
            host
            for host, one in self.known.containers.items()
            if one["role"] == "rest"
            or any((Path(mount["source"]) / "munge.key").exists() for mount in one["mounts"])
        ]

    def _drain(self) -> None:
        """Wait until no node has a job: slurmstepds talk to slurmctld, and end with their container."""
        hosts = [host for host, one in self.known.containers.items() if one["role"] == "worker"]
        hint = (
            f"munge's key is the old one. `{self.record.command}` later goes on; with `--wait 2h` "
            "it waits longer, with `--wait 0` it ends these jobs and queues again those that can be"
        )
        place = state.folder(self.name)
        wait_for_jobs(self.client, self.name, hosts, place, self.patience_s, hint, self.events)

    # Containers.

    def _there(self, hosts: Sequence[str]) -> list[str]:
        found = containers.by_host(self.client, self.name)
        return [host for host in hosts if host in found and host in self.known.containers]

    def _start_ended(self, secret: rotation_record.Secret) -> None:
        """Start what ended while the rotation was interrupted: daemons wait for each other when they start.

        But for those with munge's key when it is half new.
        """
        kept = self._with_munge_key() if secret == "munge" else []
        alive = containers.alive(self.client, self.name)
        self._start([host for host in self.known.containers if host not in alive and host not in kept])

    def _stop(self, hosts: Sequence[str]) -> None:
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            list(pool.map(lambda host: containers.stop_one(self.client, self.name, host), self._there(hosts)))

    def _start(self, hosts: Sequence[str]) -> None:
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            list(
                pool.map(lambda host: containers.start_one(self.client, self.name, host), self._there(hosts))
            )

    def _start_anew(self, host: str) -> None:
        """End and start the host's container, and wait until its daemon answers."""
        if not self._there([host]):
            return
        with self.events.step("cluster", f"start {host} anew"):
            containers.stop_one(self.client, self.name, host)
            containers.start_one(self.client, self.name, host)
            deadline = time.monotonic() + _ANSWERS_S
            while not containers.succeeds(self.client, self.name, host, _ANSWERS[host]):
                if time.monotonic() >= deadline or host not in containers.alive(self.client, self.name):
                    raise CellblockError(
                        f"cluster {self.name}: {host} was started with the new secret, and does not answer"
                        f"{containers.last_lines(self.client, self.name)}",
                        hint=f"`build.py logs {host}{name_option(self.name)}` shows why; "
                        f"`{self.record.command}` goes on",
                    )
                time.sleep(_POLL_S)
