# SPDX-License-Identifier: Apache-2.0
"""Works out slurm.conf's settings of nodes on demand: State=CLOUD, and how long they idle, start and end.

Nodes on demand are made when jobs wait for them (docs/kubernetes.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.cluster.definition.amounts import seconds
from cellblock.cluster.definition.node_set import NodeSet

# What makes pods gives up after start_within and says why; Slurm, which knows no reason, a moment later.
_LATER_S = 120
# From SuspendProgram on; then the node may be asked for again. An idle pod is gone within seconds; a longer
# end delays the next start, which waits for it.
_END_S = 60


@dataclass(frozen=True)
class OnDemandFacts:
    """What a set on demand is to Slurm; times in seconds."""

    idle_s: int
    start_s: int
    least: int
    """Nodes, the first ones, that stay when nothing needs them."""
    end_s: int = _END_S


def on_demand_facts(one: NodeSet) -> OnDemandFacts | None:
    """How Slurm is told of the nodes of set `one`; None when they are always there."""
    if one.on_demand is None:
        return None
    declared = one.on_demand
    return OnDemandFacts(
        seconds(declared.idle_after), seconds(declared.start_within) + _LATER_S, declared.min
    )
