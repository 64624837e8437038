# SPDX-License-Identifier: Apache-2.0
"""Lists the clusters that run on this machine, and those of which only a jail is left."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    when its state cannot be read or its engine does not answer: `error` says why, `next` what to do.
    """

    name: str
    state: Literal["ready", "not ready", "stopped", "unknown"]
    volume: Path
    variant: str | None = None
    nodes: int | None = None
    ssh_port: int | None = None
    error: str = ""
    next: str = ""


def list_clusters() -> tuple[ClusterRow, ...]:
    """All clusters, by name. One whose state is damaged is listed as well.

    Raises OSError where the folder of the clusters cannot be read.
    """
    return tuple(_row(name) for name in state.listed())


def _row(name: str) -> ClusterRow:
    try:
        known = state.read(name)
    except CellblockError as error:
        return ClusterRow(name, "unknown", volume_path(name), error=error.message, next=error.hint)
    if known is None:
        return ClusterRow(name, "stopped", volume_path(name))
    row = ClusterRow(name, "unknown", Path(known.volume), known.variant, len(known.nodes), known.ssh_port)
    try:
        return replace(row, state="ready" if local.status(name).ready else "not ready")
    except CellblockError as error:
        return replace(row, error=f"whether it runs is unknown: {error.message}", next=error.hint)
