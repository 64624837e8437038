# SPDX-License-Identifier: Apache-2.0
"""Reads partitions from `scontrol show partition`, and makes metrics of their jobs and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cellblock_exporter import jobs as job_counts
from cellblock_exporter import nodes as node_counts
from cellblock_exporter import tres
from cellblock_exporter.exposition import Text
from cellblock_exporter.jobs import Job
from cellblock_exporter.nodes import Node

COMMAND = ("scontrol", "--all", "--oneliner", "show", "partition")

# slurmctld's endpoint has no slurm_partition_jobs_nodes_alloc.
_JOBS = tuple(name for name in job_counts.COUNTED if name != "nodes_alloc")
# Names under slurm_partition_nodes_ that differ from those under slurm_nodes_.
_OTHER_NAMES = {"completing": "cg", "noresp": "no_resp", "reboot_req": "reboot_requested"}


@dataclass(frozen=True)
class Partition:
    """A partition, and what slurmctld says of it as a whole."""

    name: str
    cpus: int
    nodes: int
    gpus: int


def read(output: str) -> list[Partition]:
    """Partitions of what COMMAND printed."""
    found = [node_counts.fields(line) for line in output.splitlines() if line.startswith("PartitionName=")]
    return [
        Partition(
            one["PartitionName"],
            int(one.get("TotalCPUs", "0")),
            int(one.get("TotalNodes", "0")),
            tres.parse(one.get("TRES", "")).get("gres/gpu", 0),
        )
        for one in found
    ]


def write(text: Text, partitions: list[Partition], jobs: list[Job], nodes: list[Node]) -> None:
    """The families of /metrics/partitions."""
    jobs_in = job_counts.grouped(jobs, lambda job: job.partitions)
    nodes_in: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.partitions:
            nodes_in.setdefault(name, []).append(node)
    rows = {
        one.name: _figures(one, jobs_in.get(one.name, []), nodes_in.get(one.name, [])) for one in partitions
    }
    text.gauge("slurm_partitions", "Partitions", len(partitions))
    for name, help_text in HELP.items():
        samples = (({"partition": partition}, row[name]) for partition, row in rows.items())
        text.family(f"slurm_partition_{name}", "gauge", help_text, samples)


def _figures(partition: Partition, jobs: list[Job], nodes: list[Node]) -> dict[str, int]:
    pending = [job for job in jobs if "pending" in job.counts]
    free = [job for job in pending if "hold" not in job.counts]
    counted = node_counts.count(nodes)
    return {
        "jobs": sum("finished" not in job.counts for job in jobs),
        **{f"jobs_{name}": value for name, value in job_counts.count(jobs).items() if name in _JOBS},
        "jobs_max_job_nodes": _most(job.max_nodes for job in pending),
        "jobs_max_job_nodes_nohold": _most(job.max_nodes for job in free),
        "jobs_min_job_nodes": _most(job.min_nodes for job in pending),
        "jobs_min_job_nodes_nohold": _most(job.min_nodes for job in free),
        "jobs_wait_part_node_limit": sum(job.reason == "PartitionNodeLimit" for job in pending),
        **{f"nodes_{_OTHER_NAMES.get(name, name)}": value for name, value in counted.items()},
        "nodes_powering_down": sum("POWERING_DOWN" in node.states for node in nodes),
        "nodes_cpus_alloc": sum(node.cpus_alloc for node in nodes),
        "nodes_cpus_efctv": sum(node.cpus_effective for node in nodes),
        "nodes_cpus_idle": sum(max(node.cpus_effective - node.cpus_alloc, 0) for node in nodes),
        "nodes_mem_alloc": sum(node.memory_alloc for node in nodes),
        "nodes_mem_avail": sum(node.memory_effective for node in nodes),
        "nodes_mem_free": sum(node.memory_free for node in nodes),
        "nodes_mem_tot": sum(node.memory for node in nodes),
        "cpus": partition.cpus,
        "gpus": partition.gpus or sum(node.gpus for node in nodes),
        "nodes": partition.nodes,
    }


def _most(numbers: Iterable[int]) -> int:
    return max(numbers, default=0)


def _help() -> Mapping[str, str]:
    states = {_OTHER_NAMES.get(name, name): node_counts.help_of(name) for name in node_counts.count(())}
    return {
        "jobs": "Jobs in the partition that have not ended",
        **{f"jobs_{name}": job_counts.help_of(name) for name in _JOBS},
        "jobs_max_job_nodes": "The most nodes that a job which waits would take",
        "jobs_max_job_nodes_nohold": "The same of jobs that are not held",
        "jobs_min_job_nodes": "The most nodes that a job which waits needs",
        "jobs_min_job_nodes_nohold": "The same of jobs that are not held",
        "jobs_wait_part_node_limit": "Jobs that wait for the partition's limit of nodes",
        **{f"nodes_{name}": text for name, text in states.items()},
        "nodes_powering_down": "Nodes in the state POWERING_DOWN",
        "nodes_cpus_alloc": "Processors that jobs have on the partition's nodes",
        "nodes_cpus_efctv": "Processors that jobs can have on the partition's nodes",
        "nodes_cpus_idle": "Processors that jobs can have and have not",
        "nodes_mem_alloc": "Bytes of memory that jobs have on the partition's nodes",
        "nodes_mem_avail": "Bytes of memory that jobs can have",
        "nodes_mem_free": "Bytes of memory that the nodes' kernels have free",
        "nodes_mem_tot": "Bytes of memory of the nodes",
        "cpus": "Processors of the partition",
        "gpus": "GPUs of the partition",
        "nodes": "Nodes of the partition",
    }


HELP = _help()
