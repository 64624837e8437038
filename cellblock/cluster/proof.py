"""Jobs that show the cluster at work: both workers, one jail, the login node."""

from __future__ import annotations

import secrets
import time

import docker

from cellblock.cluster import state
from cellblock.cluster.api import connect
from cellblock.cluster.local import in_jail
from cellblock.cluster.model import Proof
from cellblock.cluster.running import execute
from cellblock.errors import CellblockError
from cellblock.events import Events

# In the jail: /root is on the volume, unlike /tmp, which each job has for itself.
_PATH = "/root/cellblock-proof"

# One line a task: the node's name, and what the task's os-release says it runs in.
_WHO = '. /etc/os-release; echo "$SLURMD_NODENAME $PRETTY_NAME"'
# The writer prints what it writes; the number is the proof's own, so that no earlier file passes for it.
_WRITE = f'echo "written by job $SLURM_JOB_ID on $SLURMD_NODENAME, number $0" | tee {_PATH}'

# Seconds to wait for nodes that others' jobs use, and for a job to end.
_IMMEDIATE_S = 30
_TIMEOUT_S = 90


def prove(name: str, events: Events) -> Proof:
    """Run the proof's jobs in cluster `name`.

    Raises CellblockError when there is no such cluster, a job fails, or what one node wrote is not
    what another reads.
    """
    known = state.require(name)
    started = time.monotonic()
    writer, reader = "worker-1", f"worker-{min(known.workers, 2)}"
    with connect(known.engine) as client, events.step("cluster", "proof"):
        nodes = f"--nodes={known.workers}"
        output = _srun(client, name, nodes, "--ntasks-per-node=1", "sh", "-c", _WHO)
        workers = dict(line.split(" ", 1) for line in sorted(output.splitlines()) if " " in line)
        number = secrets.token_hex(4)
        written = _srun(client, name, f"--nodelist={writer}", "sh", "-c", _WRITE, number).strip()
        read = _srun(client, name, f"--nodelist={reader}", "cat", _PATH).strip()
        login = _login(client, name, "cat", _PATH).strip()
        _login(client, name, "rm", _PATH)
    if len(workers) != known.workers:
        raise CellblockError(
            f"the proof's job ran on {len(workers)} of {known.workers} workers: {output.strip()}",
            hint="`build.py status` shows the nodes",
        )
    if number not in written or not written == read == login:
        raise CellblockError(
            f"{writer} wrote {written!r} to {_PATH}, {reader} read {read!r} and the login node {login!r}: "
            "the jail is not shared",
            hint="do all nodes mount the same volume?",
        )
    return Proof(workers, _PATH, writer, reader, written, read, login, time.monotonic() - started)


def _srun(client: docker.DockerClient, name: str, *arguments: str) -> str:
    """Run a step, bounded: the nodes may be busy with others' jobs or drained."""
    bound = ("timeout", str(_TIMEOUT_S), "srun", f"--immediate={_IMMEDIATE_S}")
    return _login(client, name, *bound, *arguments)


def _login(client: docker.DockerClient, name: str, *command: str) -> str:
    return execute(client, name, "login", in_jail("env", "--chdir=/root", *command))
