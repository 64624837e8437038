# SPDX-License-Identifier: Apache-2.0
"""Reads jobs from squeue's output, and counts them in all, by user and by account.

commands.py runs squeue; partitions.py counts the same jobs by partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cellblock_exporter import hostlist, tres
from cellblock_exporter.exposition import Text

_FIELDS = (
    *("State", "UserName", "Account", "Partition", "NumCPUs", "NumNodes", "MaxNodes"),
    *("tres-alloc", "PriorityLong", "Reason", "NodeList"),
)
# Characters of an account that count: without a database it is any text of the user's.
_MOST_ACCOUNT = 64
# Accounts, or users, that are told of, those with most jobs: of each, Prometheus keeps three dozen series.
_MOST_GROUPS = 1000

# squeue shows one word of a job's state: a flag hides what it stands on. State -> what it counts as, under
# the names of slurmctld's endpoints.
_FINISHED = ("finished", "started")
_STATES: Mapping[str, tuple[str, ...]] = {
    "PENDING": ("pending",),
    "RUNNING": ("running", "started"),
    "SUSPENDED": ("suspended", "started"),
    "COMPLETED": ("completed", *_FINISHED),
    "CANCELLED": ("cancelled", *_FINISHED),
    "FAILED": ("failed", *_FINISHED),
    "TIMEOUT": ("timeout", *_FINISHED),
    "NODE_FAIL": ("node_failed", *_FINISHED),
    "PREEMPTED": ("preempted", *_FINISHED),
    "BOOT_FAIL": ("bootfail", *_FINISHED),
    "DEADLINE": ("deadline", *_FINISHED),
    "OUT_OF_MEMORY": ("outofmemory", *_FINISHED),
    "COMPLETING": ("completing", *_FINISHED),
    "CONFIGURING": ("configuring", "running", "started"),
    "EXPEDITING": ("expediting",),
    "RESIZING": ("resizing", "running", "started"),
    "SIGNALING": ("signaling", "running", "started"),
    "STAGE_OUT": ("stageout", *_FINISHED),
    "STOPPED": ("running", "started"),
    "POWER_UP_NODE": ("powerup_node", "running", "started"),
    "REQUEUED": ("requeued", "pending"),
    "REQUEUE_HOLD": ("requeued", "pending", "hold"),
    "REQUEUE_FED": ("fed_requeued", "pending"),
    "RESV_DEL_HOLD": ("pending", "hold"),
    "SPECIAL_EXIT": ("pending", "hold"),
    "REVOKED": ("revoked",),
}
_ALLOCATED = {"running", "completing"}
_HELP = {
    "cpus_alloc": "Processors that jobs have",
    "gpus_alloc": "GPUs that jobs have",
    "memory_alloc": "Bytes of memory that jobs have",
    "nodes_alloc": "Nodes that jobs have",
    "fed_requeued": "Jobs requeued in a federation",
    "finished": "Jobs that have ended and that slurmctld still knows",
    "hold": "Jobs that wait and are held",
    "started": "Jobs that have started and that slurmctld still knows",
}
STATES = tuple(sorted({name for names in _STATES.values() for name in names} | {"hold"}))
COUNTED = tuple(sorted({*STATES, "cpus_alloc", "gpus_alloc", "memory_alloc", "nodes_alloc"}))


@dataclass(frozen=True)
class Job:
    """A job that slurmctld knows; `counts` are names of STATES."""

    counts: frozenset[str]
    user: str
    account: str
    partitions: tuple[str, ...]
    cpus: int
    gpus: int
    memory: int
    nodes: frozenset[str]
    min_nodes: int
    max_nodes: int
    reason: str


def command(mark: str) -> tuple[str, ...]:
    """The command that lists all jobs. `mark` ends each field: users cannot have it in their text."""
    widths = {"Account": _MOST_ACCOUNT}
    fields = ",".join(f"{one}:{widths.get(one, '')}{mark}" for one in _FIELDS)
    return ("squeue", "--all", "--noheader", "--states=all", f"--Format={fields}")


def read(output: str, mark: str) -> list[Job]:
    """Jobs of what command(mark) printed. Raises ValueError for text of another form."""
    *fields, rest = output.split(mark)
    if rest.strip() or len(fields) % len(_FIELDS):
        raise ValueError(
            f"'{output[:80]}' has {len(fields)} fields, which are no jobs of {len(_FIELDS)} each"
        )
    return [_job(fields[at : at + len(_FIELDS)]) for at in range(0, len(fields), len(_FIELDS))]


def _job(fields: list[str]) -> Job:
    """A job of its fields. Before the first is the end of the line before."""
    state, user, account, partition, cpus, count, most, alloc, priority, reason, hosts = map(
        str.strip, fields
    )
    counts = set(_STATES.get(state, ()))
    if "pending" in counts and priority == "0":
        counts.add("hold")
    has = tres.parse(alloc) if counts & _ALLOCATED else {}
    return Job(
        frozenset(counts),
        user,
        account if account != "(null)" else "",
        tuple(partition.split(",")),
        has.get("cpu", 0) or (_number(cpus) if counts & _ALLOCATED else 0),
        has.get("gres/gpu", 0),
        has.get("mem", 0),
        hostlist.expand(hosts) if counts & _ALLOCATED else frozenset(),
        _number(count),
        _number(most) or _number(count),
        reason,
    )


def _number(text: str) -> int:
    """The number that a field such as 4, 2-4 or 1K begins with."""
    digits = text.partition("-")[0]
    return (
        int(digits)
        if digits.isdigit()
        else round(float(digits[:-1] or 0) * 1024)
        if digits[-1:] == "K"
        else 0
    )


def count(jobs: Iterable[Job]) -> dict[str, int]:
    """Name of COUNTED -> number."""
    counted = dict.fromkeys(COUNTED, 0)
    nodes: set[str] = set()
    for job in jobs:
        for name in job.counts:
            counted[name] += 1
        counted["cpus_alloc"] += job.cpus
        counted["gpus_alloc"] += job.gpus
        counted["memory_alloc"] += job.memory
        nodes |= job.nodes
    counted["nodes_alloc"] = len(nodes)
    return counted


def help_of(name: str) -> str:
    """What a name of COUNTED means."""
    return _HELP.get(name) or f"Jobs in the state {name}"


def grouped(jobs: Iterable[Job], keys: Callable[[Job], Iterable[str]]) -> dict[str, list[Job]]:
    """Jobs by each of their `keys`."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        for key in keys(job):
            groups.setdefault(key, []).append(job)
    return groups


def write(text: Text, jobs: list[Job]) -> None:
    """The families of /metrics/jobs and /metrics/jobs-users-accts."""
    text.gauge("slurm_jobs", "Jobs that slurmctld knows", len(jobs))
    counted = count(jobs)
    for name in COUNTED:
        text.gauge(f"slurm_jobs_{name}", help_of(name), counted[name])
    _write_groups(text, "user", "username", grouped(jobs, lambda job: (job.user,)))
    _write_groups(
        text, "account", "account", grouped(jobs, lambda job: (job.account,) if job.account else ())
    )


def _write_groups(text: Text, prefix: str, label: str, groups: Mapping[str, list[Job]]) -> None:
    if len(groups) > _MOST_GROUPS:
        groups = dict(sorted(groups.items(), key=lambda one: -len(one[1]))[:_MOST_GROUPS])
    counted = {key: count(jobs) for key, jobs in groups.items()}
    text.family(
        f"slurm_{prefix}_jobs",
        "gauge",
        "Jobs that slurmctld knows",
        (({label: key}, len(jobs)) for key, jobs in groups.items()),
    )
    for name in COUNTED:
        samples = (({label: key}, numbers[name]) for key, numbers in counted.items())
        text.family(f"slurm_{prefix}_jobs_{name}", "gauge", help_of(name), samples)
