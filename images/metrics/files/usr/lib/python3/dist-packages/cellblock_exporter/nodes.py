# SPDX-License-Identifier: Apache-2.0
"""Reads nodes from the output of `scontrol show node`, and makes metrics of their states and resources."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cellblock_exporter import tres
from cellblock_exporter.exposition import Text

COMMAND = ("scontrol", "--all", "--details", "--future", "--oneliner", "show", "node")

_MIB = 2**20
_STATE = re.compile(r"[A-Z_]+")
# Name under slurm_nodes_ -> Slurm's word for a state or flag.
STATES = {
    "alloc": "ALLOCATED",
    "blocked": "BLOCKED",
    "cloud": "CLOUD",
    "completing": "COMPLETING",
    "down": "DOWN",
    "drain": "DRAIN",
    "dyn_future": "DYNAMIC_FUTURE",
    "dyn_normal": "DYNAMIC_NORM",
    "external": "EXTERNAL",
    "fail": "FAIL",
    "future": "FUTURE",
    "idle": "IDLE",
    "invalid_reg": "INVALID_REG",
    "maint": "MAINTENANCE",
    "mixed": "MIXED",
    "noresp": "NOT_RESPONDING",
    "planned": "PLANNED",
    "power_down": "POWER_DOWN",
    "power_up": "POWER_UP",
    "powered_down": "POWERED_DOWN",
    "powering_up": "POWERING_UP",
    "reboot_issued": "REBOOT_ISSUED",
    "reboot_req": "REBOOT_REQUESTED",
    "resv": "RESERVED",
    "unknown": "UNKNOWN",
}
_BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}


@dataclass(frozen=True)
class Node:
    """A node; memory in bytes."""

    name: str
    states: frozenset[str]
    partitions: tuple[str, ...]
    cpus: int
    cpus_effective: int
    cpus_alloc: int
    gpus: int
    gpus_alloc: int
    memory: int
    memory_effective: int
    memory_alloc: int
    memory_free: int

    @property
    def drained(self) -> bool:
        """Takes no jobs and has none."""
        return "DRAIN" in self.states and not self.states & _BUSY

    @property
    def draining(self) -> bool:
        """Takes no jobs and still has some."""
        return "DRAIN" in self.states and bool(self.states & _BUSY)


def fields(line: str) -> dict[str, str]:
    """Key -> value of a line of `scontrol --oneliner`.

    The first of a key counts: what people wrote comes last.
    """
    found: dict[str, str] = {}
    for part in line.split():
        key, equals, value = part.partition("=")
        if equals:
            found.setdefault(key, value)
    return found


def read(output: str) -> list[Node]:
    """Nodes of what COMMAND printed.

    One in the state FUTURE and in no partition is left out: the login node is named so where slurmctld needs
    it (deploy/slurm/slurm.conf.j2), and takes no jobs.
    """
    nodes = [_node(line) for line in output.splitlines() if line.startswith("NodeName=")]
    return [node for node in nodes if node.partitions or "FUTURE" not in node.states]


def _node(line: str) -> Node:
    known = fields(line)
    configured, allocated = tres.parse(known.get("CfgTRES", "")), tres.parse(known.get("AllocTRES", ""))
    memory = _number(known["RealMemory"]) * _MIB if "RealMemory" in known else 0
    total = _number(known.get("CPUTot", "0"))
    return Node(
        known["NodeName"],
        frozenset(_STATE.findall(known.get("State", ""))),
        tuple(known.get("Partitions", "").split(",")) if known.get("Partitions") else (),
        total,
        _number(known.get("CPUEfctv", str(total))),
        _number(known.get("CPUAlloc", "0")),
        tres.gpus(configured, known.get("Gres", "")),
        tres.gpus(allocated, known.get("GresUsed", "")),
        memory,
        memory - _number(known.get("MemSpecLimit", "0")) * _MIB,
        _number(known.get("AllocMem", "0")) * _MIB,
        _number(known.get("FreeMem", "0")) * _MIB,
    )


def _number(text: str) -> int:
    """The number that a field is; 0 for N/A, which a node has that never registered."""
    return int(text) if text.isdigit() else 0


def write(text: Text, nodes: list[Node]) -> None:
    """The families of /metrics/nodes."""
    figures = {
        "slurm_node_cpus": ("Processors of the node", [one.cpus for one in nodes]),
        "slurm_node_cpus_alloc": ("Processors that jobs have", [one.cpus_alloc for one in nodes]),
        "slurm_node_cpus_effective": ("Processors that jobs can have", [one.cpus_effective for one in nodes]),
        "slurm_node_cpus_idle": (
            "Processors that jobs can have and have not",
            [max(one.cpus_effective - one.cpus_alloc, 0) for one in nodes],
        ),
        "slurm_node_gpus": ("GPUs of the node", [one.gpus for one in nodes]),
        "slurm_node_gpus_alloc": ("GPUs that jobs have", [one.gpus_alloc for one in nodes]),
        "slurm_node_memory_alloc_bytes": ("Memory that jobs have", [one.memory_alloc for one in nodes]),
        "slurm_node_memory_effective_bytes": (
            "Memory that jobs can have",
            [one.memory_effective for one in nodes],
        ),
        "slurm_node_memory_free_bytes": (
            "Memory that the kernel has free",
            [one.memory_free for one in nodes],
        ),
        "slurm_node_memory_bytes": ("Memory of the node", [one.memory for one in nodes]),
    }
    for name, (help_text, values) in figures.items():
        samples = ((({"node": node.name}), value) for node, value in zip(nodes, values, strict=True))
        text.family(name, "gauge", help_text, samples)
    text.gauge("slurm_nodes", "Nodes", len(nodes))
    for name, value in count(nodes).items():
        text.gauge(f"slurm_nodes_{name}", help_of(name), value)


def count(nodes: Iterable[Node]) -> dict[str, int]:
    """Name of STATES, drained or draining -> nodes."""
    counted = dict.fromkeys(sorted((*STATES, "drained", "draining")), 0)
    for node in nodes:
        for name, word in STATES.items():
            counted[name] += word in node.states
        counted["drained"] += node.drained
        counted["draining"] += node.draining
    return counted


def help_of(name: str) -> str:
    """What a name of `count` means."""
    if name == "drained":
        return "Nodes that take no jobs and have none"
    if name == "draining":
        return "Nodes that take no jobs and still have some"
    return f"Nodes in the state {STATES[name]}"
