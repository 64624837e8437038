# SPDX-License-Identifier: Apache-2.0
"""Reads what the health checks of a cluster's nodes found last, for `build.py health` (docs/health.md)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import docker
from docker.errors import DockerException

from cellblock.cluster.changing.draining import node_states
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.container_exec import run_inside
from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError, UsageError

# Commands in containers at once: the engine serialises most of its work.
_AT_ONCE = 4
_SHOW = ("node-health", "--show", "--json")
_MEASURE = "active-checks"


@dataclass(frozen=True)
class CheckHealth:
    """A check of a node: its last verdict (passed, failed, could not run, no verdict yet) and why.

    `sick`: it has struck out. `at` is the Unix time of the verdict, 0 without one; `history` is of P and F.
    """

    check: str
    verdict: str
    sick: bool
    action: str
    history: str
    at: int
    text: str


@dataclass(frozen=True)
class NodeHealth:
    """A node: its state and the reason for it in Slurm, empty when slurmctld does not know, and its checks.

    `error` says why nothing is known of its checks.
    """

    node: str
    state: str = ""
    reason: str = ""
    checks: tuple[CheckHealth, ...] = field(default=())
    error: str = ""

    @property
    def fit(self) -> bool:
        """Whether no check has failed last."""
        return not self.error and not any(one.verdict == "failed" for one in self.checks)


def health(cluster: str, node: str | None = None) -> tuple[NodeHealth, ...]:
    """The health of all nodes of `cluster`, or of `node` alone.

    Raises CellblockError when no such cluster runs or its file has no `health`, UsageError for a node that it
    has not.
    """
    known = state.require(cluster)
    if node is not None:
        _require(known.nodes, cluster, node)
    chosen = (node,) if node is not None else tuple(known.nodes)
    with connect(known.engine) as client:
        states = _states(client, cluster)
        measured = _measured(client, cluster, chosen)
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            own = pool.map(lambda one: _of_node(client, cluster, one, states), chosen)
            found = [replace(one, checks=(*one.checks, *measured.get(one.node, ()))) for one in own]
    if all(one.error == _OFF for one in found):
        raise CellblockError(
            f"cluster {cluster} does not look at its nodes' health",
            hint=f"add `health: {{}}` to its cluster file, and `build.py up{name_option(cluster)} "
            "--cluster FILE`",
        )
    return tuple(found)


def measure(cluster: str, node: str | None = None) -> tuple[str, bool]:
    """Have the idle nodes of `cluster`, or `node` and some to compare it with, measured by a job, now.

    Returns what was found, a line for each check of each node, and whether no check failed. Raises
    CellblockError when nothing could be measured, and as `health` does.
    """
    known = state.require(cluster)
    if node is not None:
        _require(known.nodes, cluster, node)
    with connect(known.engine) as client:
        status, output = run_inside(
            client, container_name(cluster, "controller"), [_MEASURE, *([node] if node is not None else [])]
        )
    said = output.decode("utf-8", "replace").strip()
    if not said:
        raise CellblockError(
            f"no job measures the nodes of cluster {cluster}",
            hint="its cluster file needs `health`, and not `active: null` in it; "
            f"`build.py up{name_option(cluster)} --cluster FILE` follows it",
        )
    if all(line.startswith((f"{_MEASURE}:", "srun:", "[")) for line in said.splitlines()):
        raise CellblockError(said.splitlines()[-1].removeprefix(f"{_MEASURE}: "))
    return said, status == 0


def _require(nodes: Collection[str], cluster: str, node: str) -> None:
    if node not in nodes:
        raise UsageError(
            f"cluster {cluster} has no node '{node}'",
            hint=f"its nodes are {', '.join(list(nodes)[:6])}{' and more' if len(nodes) > 6 else ''}",
        )


_OFF = "no checks run on it"


def _measured(
    client: docker.DockerClient, cluster: str, nodes: Sequence[str]
) -> Mapping[str, tuple[CheckHealth, ...]]:
    """Node -> the last verdicts of the checks that are jobs; none while the controller does not answer."""
    command = [_MEASURE, "--show", *(nodes if len(nodes) == 1 else ())]
    try:
        status, output = run_inside(client, container_name(cluster, "controller"), command)
    except (DockerException, OSError):
        return {}
    if status:
        return {}
    shown = [json.loads(line) for line in output.splitlines() if line.startswith(b"{")]
    return {one["node"]: tuple(CheckHealth(**check) for check in one["checks"]) for one in shown}


def _states(client: docker.DockerClient, cluster: str) -> Mapping[str, tuple[str, str]]:
    """Node -> its state and reason; none while slurmctld does not answer."""
    try:
        return {name: (one.state, one.reason) for name, one in node_states(client, cluster).items()}
    except CellblockError:
        return {}


def _of_node(
    client: docker.DockerClient, cluster: str, node: str, states: Mapping[str, tuple[str, str]]
) -> NodeHealth:
    word, reason = states.get(node, ("", ""))
    try:
        status, output = run_inside(client, container_name(cluster, node), _SHOW)
    except (DockerException, OSError) as error:
        return NodeHealth(node, word, reason, error=f"its container does not answer: {error}")
    if status:
        return NodeHealth(node, word, reason, error=output.decode("utf-8", "replace").strip())
    if not output.strip():
        return NodeHealth(node, word, reason, error=_OFF)
    shown: dict[str, Any] = json.loads(output)
    checks = tuple(CheckHealth(**one) for one in shown["checks"])
    return NodeHealth(node, word, "" if reason == "none" else reason, checks)
