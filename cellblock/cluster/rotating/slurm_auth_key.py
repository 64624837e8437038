# SPDX-License-Identifier: Apache-2.0
"""Replaces the key by which Slurm's daemons sign messages (auth/slurm), while jobs and sessions go on.

First all daemons get the new key beside the old one, which still signs. Then the new key signs. Then the old
key is removed. Each step waits until every daemon answers that it has what the step brought, so that no
daemon meets a signature that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import docker

from cellblock.cluster.configuration import secrets, slurm_keys
from cellblock.cluster.configuration.secrets import OLD_SLURM_KEY, SLURM_KEYS
from cellblock.cluster.configuration.slurm_keys import Key, KeySet
from cellblock.cluster.definition.names import CONTROLLERS, name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.facts.rotation_record import RotationRecord
from cellblock.cluster.facts.state import ClusterState
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.files import durable

# Seconds until a daemon has read the key: slurmd waits for what it is about to launch.
_READS_S = 75.0
_AT_ONCE = 4
_SLURM_SOCKET, _JAIL_SOCKET = "/run/slurm/sack.socket", "/run/slurm-for-jail/sack.socket"
# Role -> the sockets of its daemons; that of the jail is not there with `jail.root: operator`.
_SOCKETS = {
    "controller": ("/run/slurmctld/sack.socket",),
    "accounting": ("/run/slurmdbd/sack.socket",),
    "metrics": (_SLURM_SOCKET,),
    "worker": (_SLURM_SOCKET, _JAIL_SOCKET),
    "login": (_SLURM_SOCKET, _JAIL_SOCKET),
}
# Exit status 0 when all that there are do: take the token $1, sign by the key $1, refuse the token $1.
_EACH = 'for socket in $2; do [ ! -S "$socket" ] || '
_TAKES = _EACH + '/usr/lib/cellblock/sack-ask "$socket" "$1" || exit 1; done'
_SIGNS = _EACH + '/usr/lib/cellblock/sack-ask "$socket" | grep -q " kid=$1$" || exit 1; done'
_REFUSES = _EACH + '{ /usr/lib/cellblock/sack-ask "$socket" "$1"; [ $? -eq 1 ] || exit 1; }; done'
# Who asks goes before who answers; slurmctld has its nodes read their files again, the key as well.
_ORDER = (("worker",), ("login", "metrics"), ("controller",), ("accounting",))


@dataclass
class AuthKeyRotation:
    """A new key of auth/slurm for the cluster `known`, whose secrets are in `secrets`.

    `start_anew` ends and starts a host's container, and waits until its daemon answers.
    """

    client: docker.DockerClient
    known: ClusterState
    record: RotationRecord
    secrets: Path
    start_anew: Callable[[str], None]
    events: Events

    def run(self, renewed: Callable[[], None]) -> None:
        """Do what is left of it; `renewed` notes that from then on nobody needs the old key.

        Raises CellblockError when a daemon does not take a key in time, or the file of keys cannot be read.
        """
        keys = self._read()
        if self.record.phase != "renewed":
            old = keys.keys[0]
            if len(keys.keys) == 1:
                keys = KeySet((old, slurm_keys.new_key()), old.kid)
                secrets.write_slurm_keys(self.secrets, keys)
            new = keys.keys[-1]
            if keys.default == old.kid:
                self._renew("have all take the new key", _TAKES, slurm_keys.token_of_nobody(new))
                secrets.write_slurm_keys(self.secrets, KeySet(keys.keys, new.kid))
            self._renew("have all sign by it", _SIGNS, new.kid)
            self._keep_old(old)
            renewed()
        secrets.write_slurm_keys(self.secrets, slurm_keys.only(self._read().signing))
        before = slurm_keys.parse(self._old.read_bytes()).keys[0] if self._old.exists() else None
        if before:
            self._renew("have all forget the old key", _REFUSES, slurm_keys.token_of_nobody(before))
            self._old.unlink()
            durable.sync_directory(self._old.parent)

    @property
    def _old(self) -> Path:
        """The old key, until all have forgotten it: that they have is seen by a token of it."""
        return self.secrets / OLD_SLURM_KEY

    def _keep_old(self, old: Key) -> None:
        durable.write(self._old, slurm_keys.text(slurm_keys.only(old)).decode(), mode=0o600)

    def _read(self) -> KeySet:
        try:
            return secrets.read_slurm_keys(self.secrets)
        except (OSError, ValueError) as error:
            file = self.secrets / "slurm" / SLURM_KEYS
            raise CellblockError(
                f"{file}: cannot be read as the keys of auth/slurm: {error}",
                hint=f"`build.py down{name_option(self.known.name)}`; `up`, with its options, makes new ones",
            ) from error

    def _renew(self, what: str, question: str, about: str) -> None:
        """Have all daemons read the file of keys, and wait until their answers show that they have."""
        with self.events.step("cluster", what):
            for roles in _ORDER:
                hosts = [
                    host
                    for host, one in self.known.containers.items()
                    if one["role"] in roles
                    and any((Path(mount["source"]) / SLURM_KEYS).exists() for mount in one["mounts"])
                ]
                there = containers.alive(self.client, self.known.name)
                with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
                    asked = [host for host in hosts if host in there]
                    list(pool.map(lambda host: self._renew_one(host, question, about), asked))

    def _renew_one(self, host: str, question: str, about: str) -> None:
        role = str(self.known.containers[host]["role"])
        name = self.known.name
        if role == "accounting" or host == CONTROLLERS[1]:
            # slurmdbd reads it when it starts, and never again; slurmctld keeps records meanwhile. So does a
            # second slurmctld while it does not act.
            self.start_anew(host)
        else:
            containers.execute(self.client, name, host, ["/usr/lib/cellblock/renew-key", role])
        ask = ("sh", "-c", question, "sh", about, " ".join(_SOCKETS[role]))
        if not containers.succeeds_within(self.client, name, host, ask, _READS_S):
            raise CellblockError(
                f"cluster {name}: the daemons of {host} did not read the new key of auth/slurm within "
                f"{_READS_S:.0f} s{containers.last_lines(self.client, name)}",
                hint=f"`build.py logs {host}{name_option(name)}` shows why; `{self.record.command}` goes "
                "on. Until then Slurm works with both keys",
            )
