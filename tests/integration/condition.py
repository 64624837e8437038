# SPDX-License-Identifier: Apache-2.0
"""Reports the state of a cluster when a test's wait fails, so that the failure explains itself."""

from __future__ import annotations

import os
import subprocess

from cellblock.cluster.engine.api import podman_environment
from cellblock.cluster.engine.container_specs import container_name

_LOOKS = (
    ("sinfo", "--Node", "--Format=NodeHost:12,StateLong:20,Reason:60"),
    ("squeue", "--all", "--Format=JobID:8,UserName:10,State:14,TimeUsed:8,NodeList:20,Reason:30,Name:20"),
    ("squeue", "--all", "--steps"),
)
# Ended jobs as well, the last first: which runs and ends there were, and what held a worker.
_JOBS = (
    "squeue --all --states=all --sort=-i --Format="
    "JobID:8,State:12,RestartCnt:11,Partition:10,SubmitTime:20,StartTime:20,EndTime:20,NodeList:18,Reason:30,Name"
    " | head -n 31"
)
# Of each process: its number, its state and kernel function (a hung step sleeps in a futex), its words.
_PROCESSES = """for p in /proc/[0-9]*; do
    words=$(tr '\\0' ' ' < "$p/cmdline")
    if [ "$words" ]; then
        echo "${p#/proc/} $(grep ^State "$p/status" | cut -c 8) $(cat "$p/wchan") $words"
    fi
done 2>/dev/null"""
# Of a worker; slurmstepd writes to the file alone (deploy/slurm/slurm.conf.j2).
_STEPS = ("tail", "-n30", "/var/log/slurm/slurmd.log")


def nodes_of(name: str) -> str:
    """Each node of the cluster `name` with its state and the reason for it, in one line."""
    look = ("sinfo", "--noheader", "--Node", "--format=%n %T %E")
    lines = _shown("nodes", "podman", "exec", container_name(name, "controller"), *look).splitlines()[1:]
    return ", ".join(sorted(set(lines)))


def condition_of(name: str) -> str:
    """Nodes, queue, processes and logs of the cluster `name`: what one would look at by hand."""
    controller = container_name(name, "controller")
    told = [_shown(" ".join(look), "podman", "exec", controller, *look) for look in _LOOKS]
    told.append(_shown("the last jobs", "podman", "exec", controller, "sh", "-c", _JOBS))
    for hostname in ("worker-1", "worker-2"):
        worker = container_name(name, hostname)
        told += [
            _shown(f"{hostname}: processes", "podman", "exec", worker, "sh", "-c", _PROCESSES),
            _shown(f"{hostname}: log of slurmd", "podman", "logs", "--tail=30", worker),
            _shown(f"{hostname}: log of its steps", "podman", "exec", worker, *_STEPS),
        ]
    told.append(_shown("controller: log", "podman", "logs", "--tail=30", controller))
    return "\n".join(told)


def _shown(title: str, *command: str) -> str:
    """What a command prints, which may fail or hang: the cluster is not well."""
    environment = {**os.environ, **podman_environment()}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"--- {title}: no answer in 20 s"
    return f"--- {title}\n{done.stdout}{done.stderr}"
