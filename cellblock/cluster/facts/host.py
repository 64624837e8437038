# SPDX-License-Identifier: Apache-2.0
"""Finds out what this machine has for containers: cgroups, memory, processors, limits, who holds a port."""

from __future__ import annotations

import os
import resource
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellblock.machine.processes import all_processes, look_at_each

CgroupMode = Literal["v2", "disabled"]

# The controllers that slurmd hands down to jobs.
_NEEDED_CONTROLLERS = {"cpu", "cpuset", "memory"}
# Processes and threads of one container: more than jobs of one machine use, and no reason to fill its memory.
_MOST_PIDS = 65536
# capabilities(7).
_CAP_SYS_RESOURCE = 24


@dataclass(frozen=True)
class Limit:
    """A resource limit of a container: name as in the Docker API (nofile), soft equals hard; -1: none."""

    name: str
    value: int


def cgroup_mode(root: Path = Path("/sys/fs/cgroup")) -> CgroupMode:
    """`v2` when the controllers Slurm needs are in the unified hierarchy, else `disabled`."""
    try:
        controllers = set((root / "cgroup.controllers").read_text(encoding="ascii").split())
    except OSError:
        return "disabled"
    return "v2" if controllers >= _NEEDED_CONTROLLERS else "disabled"


def memory_mb() -> int:
    """Memory of this machine in MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20


def cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0))


def pids_limit() -> int:
    """Processes and threads that one container may have: at most half of what this machine can number."""
    return min(_number(Path("/proc/sys/kernel/pid_max"), 32768) // 2, _MOST_PIDS)


def container_limits() -> tuple[Limit, ...]:
    """Limits for the daemons, and so, with PropagateResourceLimits=NONE, for jobs.

    A process that may not raise limits (no CAP_SYS_RESOURCE) cannot start a container with higher
    ones than its own; it then passes on what it has.
    """
    # Enough for MPI with thousands of ranks and for databases; the kernel's own default ceiling.
    wanted = {
        "nofile": (resource.RLIMIT_NOFILE, 1048576),
        "nproc": (resource.RLIMIT_NPROC, _number(Path("/proc/sys/kernel/pid_max"), 32768)),
        # Registered (pinned) memory of fast networks and GPUs.
        "memlock": (resource.RLIMIT_MEMLOCK, -1),
    }
    may_raise = _has_capability(_CAP_SYS_RESOURCE)
    limits = []
    for name, (which, value) in wanted.items():
        hard = resource.getrlimit(which)[1]
        limits.append(Limit(name, value if may_raise else _lower(value, hard)))
    return tuple(limits)


def port_holder(port: int) -> str | None:
    """Who listens on TCP `port`, as "NAME (pid N)", or None when the port is free."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As a server would: connections that are closing do not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            pass
        else:
            return None
    inodes = _listening_inodes(port)
    holders = look_at_each(all_processes(), lambda process: _holder(process, inodes)).found.values()
    return next((holder for holder in holders if holder), "another process")


def _holder(process: Path, inodes: set[str]) -> str:
    """NAME (pid N) of a process that has one of the sockets `inodes`; empty when it has none."""
    try:
        for descriptor in (process / "fd").iterdir():
            target = str(descriptor.readlink())
            if target.startswith("socket:[") and target[8:-1] in inodes:
                name = (process / "comm").read_text(encoding="utf-8").strip()
                return f"{name} (pid {process.name})"
    except OSError:
        pass  # ended, or another user's
    return ""


def _listening_inodes(port: int) -> set[str]:
    """Inodes of the sockets that listen on `port` (proc_net_tcp: field 4 is the state, 0A listens)."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(fields[9])
    return inodes


def _lower(wanted: int, hard: int) -> int:
    """The smaller of two limits, of which -1 is none at all."""
    if hard == resource.RLIM_INFINITY:
        return wanted
    return hard if wanted == -1 else min(wanted, hard)


def _number(path: Path, default: int) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return default


def _has_capability(number: int) -> bool:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False
