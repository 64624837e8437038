# SPDX-License-Identifier: Apache-2.0
"""Lists the clusters of this machine: those that run, and those of which a jail is kept."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellblock.cluster import local
from cellblock.cluster.facts import state
from cellblock.cluster.up_request import volume_path
from cellblock.errors import CellblockError


@dataclass(frozen=True)
class ClusterRow:
    """A cluster. `variant`, `nodes` and `ssh_port` are known of one that was started.

    `state`: ready; not ready, when containers or nodes are missing; stopped, when its jail is kept; unknown,
    when its state cannot be read or its engine does not answer.
    """

    name: str
    state: Literal["ready", "not ready", "stopped", "unknown"]
    volume: Path
    variant: str | None = None
    nodes: int | None = None
    ssh_port: int | None = None


def list_clusters() -> tuple[ClusterRow, ...]:
    """All clusters, by name. One whose state is damaged is listed as well."""
    return tuple(_row(name) for name in state.names())


def _row(name: str) -> ClusterRow:
    try:
        known = state.read(name)
    except CellblockError:
        return ClusterRow(name, "unknown", volume_path(name))
    if known is None:
        return ClusterRow(name, "stopped", volume_path(name))
    now: Literal["ready", "not ready", "unknown"] = "unknown"
    with suppress(CellblockError):
        now = "ready" if local.status(name).ready else "not ready"
    return ClusterRow(name, now, Path(known.volume), known.variant, len(known.nodes), known.ssh_port)
