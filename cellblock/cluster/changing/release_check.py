# SPDX-License-Identifier: Apache-2.0
"""Refuses to start a release of Slurm that cannot read the cluster's data.

It also refuses changes while slurmdbd converts the accounting's database to a newer release.
"""

from __future__ import annotations

import docker

from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.facts import state
from cellblock.cluster.facts.upgrade_record import read, refuse_under_way, state_release
from cellblock.errors import CellblockError
from cellblock.slurm_releases import refuse_indirect

# There while slurmdbd may be converting the database (images/accounting).
_CONVERTING = "/run/slurmdbd/converting"


def refuse_release(name: str, release: str) -> None:
    """Raise when an upgrade of cluster `name` is under way, or Slurm `release` does not read its state.

    CellblockError for the former, UsageError for the latter.
    """
    refuse_under_way(name, "`up` does not change a cluster of two releases")
    wrote = state_release(state.folder(name))
    record = read(name)
    if wrote is None:
        return
    refuse_indirect(
        wrote,
        release,
        way_back=f"`{record.back_command}` takes it back to Slurm {record.old_release}"
        if record
        else f"start it with a variant of Slurm {wrote}: `build.py targets` lists them",
    )


def is_converting(client: docker.DockerClient, name: str) -> bool:
    """Whether slurmdbd of cluster `name` may be converting the database."""
    return containers.succeeds(client, name, "accounting", ["test", "-e", _CONVERTING])


def refuse_converting(client: docker.DockerClient, name: str) -> None:
    """Raise CellblockError while slurmdbd converts the database: whoever ends it may damage that."""
    if "accounting" in containers.alive(client, name) and is_converting(client, name):
        raise CellblockError(
            f"cluster {name}: slurmdbd is converting the database to its release, and is not to be ended",
            hint=f"wait until it is done: `build.py logs accounting --follow{name_option(name)}`; `build.py "
            f"down --purge{name_option(name)}` deletes the cluster with its database",
        )
