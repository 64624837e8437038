# SPDX-License-Identifier: Apache-2.0
"""Measures what one run of a node's quick health checks costs, on a running cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import docker

from cellblock.bench.harness.percentile import percentile
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.container_exec import run_inside
from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError
from cellblock.events import Events

# Of each turn, in seconds: its wall time, and the processor time of it and of what it started (getrusage(2)).
# A state of its own: what the node's turns count stays as it is.
_TURNS = """
TIMEFORMAT='%3R %3U %3S'
for turn in $(seq 0 "$0"); do time node-health --offline --state /run/cellblock/health-bench; done
rm -rf /run/cellblock/health-bench
"""


@dataclass(frozen=True)
class HealthCost:
    """The wall time and the processor time of each turn, in ms."""

    node: str
    checks: int
    wall: Sequence[float]
    cpu: Sequence[float]

    def keys(self) -> dict[str, object]:
        """The figures by the names that docs/benchmarks.md has."""
        return {
            "quick_checks_cpu_ms": round(median(self.cpu), 1),
            "quick_checks_wall_ms": round(median(self.wall), 1),
            "quick_checks_wall_ms_p99": round(percentile(self.wall, 99), 1),
            "checks": self.checks,
            "turns": len(self.wall),
        }


def health_cost(cluster: str, turns: int, events: Events) -> HealthCost:
    """Measure `turns` turns on the first node of `cluster`. Raises CellblockError when none runs there."""
    known = state.require(cluster)
    node = known.nodes[0]
    with connect(known.engine) as client, events.step("bench", f"{turns} turns of checks on {node}"):
        shown = _run(client, cluster, node, ["node-health", "--show"]).splitlines()
        if not shown:
            raise CellblockError(
                f"cluster {cluster} does not look at its nodes' health",
                hint="`health: {}` in its cluster file, docs/health.md",
            )
        # The first one asks slurmctld for the time, and reads programs from the disk.
        lines = _run(client, cluster, node, ["bash", "-euc", _TURNS, str(turns)]).splitlines()[1:]
    times = [[float(part) * 1e3 for part in line.split()] for line in lines]
    return HealthCost(node, len(shown), [one[0] for one in times], [one[1] + one[2] for one in times])


def _run(client: docker.DockerClient, cluster: str, node: str, command: Sequence[str]) -> str:
    status, output = run_inside(client, container_name(cluster, node), command)
    text = output.decode("utf-8", "replace")
    if status:
        raise CellblockError(
            f"{node}: {command[0]} ended with status {status}: {text.strip()}",
            hint=f"`build.py logs {node}{name_option(cluster)}` prints what the node said",
        )
    return text
