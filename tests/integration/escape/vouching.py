# SPDX-License-Identifier: Apache-2.0
"""Names the files and sockets by which Slurm authenticates users: munge, or auth/slurm if that is tested.

CELLBLOCK_TEST_AUTH=slurm selects auth/slurm.
"""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.cluster.facts import state
from tests.integration.local_cluster import LocalCluster


@dataclass(frozen=True)
class Vouching:
    """The processes that have the key, on a worker and on the login node, and where it is in their roots.

    `secret` is its name among the cluster's secrets, `user` who owns it, and `socket`
    what clients ask.
    """

    on_worker: str
    on_login: str
    key: str
    secret: str
    user: str
    socket: str

    def key_at(self, process: str) -> str:
        """The key as the node's root names it in a process that has it."""
        return f"/proc/{process}/root{self.key}"

    def variables(self, cluster: LocalCluster, worker: str) -> dict[str, str]:
        """What attacks are told of it."""
        return {
            "KEY": self.key,
            "KEY_HOLDER": self.on_worker,
            "SECRET_KEY": self.secret,
            "VOUCHING_SOCKET": self.socket,
            "MUNGE_UID": cluster.on(worker, "id", "-u", self.user).ok().strip(),
        }


MUNGE = Vouching(
    "munged",
    "munged",
    "/etc/munge/munge.key",
    "/run/secrets/cellblock/munge.key",
    "munge",
    "/run/munge/munge.socket.2",
)
SLURM = Vouching(
    "key-keeper",
    "sackd",
    "/run/sack-keys/slurm.jwks",
    "/run/secrets/cellblock/slurm.jwks",
    "slurm",
    "/run/slurm/sack.socket",
)


def numbers_of(cluster: LocalCluster, worker: str, name: str) -> list[str]:
    """The processes of a worker that run the program `name`; munged stands for who has the key."""
    if name == MUNGE.on_worker and vouching_of(cluster) == SLURM:
        # A script: its program is the shell's.
        return cluster.on(worker, "cat", "/run/cellblock/key-keeper.pid").out.split()
    return cluster.numbers_of(worker, name)


def vouching_of(cluster: LocalCluster) -> Vouching:
    """That of a cluster that runs."""
    return SLURM if state.require(cluster.request.name).auth == "slurm" else MUNGE
