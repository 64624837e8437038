# SPDX-License-Identifier: Apache-2.0
"""Runs jobs that show that a new cluster works: on two workers, in one jail, from the login node.

An ordinary user of the jail submits them (proof_user.py), because root in the jail may not.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial

import docker

from cellblock.cluster.changing.draining import node_states
from cellblock.cluster.definition.model import Proof
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.containers import execute
from cellblock.cluster.facts import state
from cellblock.cluster.local import in_jail
from cellblock.cluster.proof_user import PROOF_USER, ensure_proof_user
from cellblock.errors import CellblockError
from cellblock.events import Events

# In the jail: on the volume, unlike /tmp, which each job has for itself, and open to all.
_FOLDER = "/var/tmp"

# One line a task: the node's name, and what the task's os-release says it runs in.
_WHO = '. /etc/os-release; echo "$SLURMD_NODENAME $PRETTY_NAME"'
# The writer prints what it writes. noclobber: a user must not have the proof write through a link of his.
_WRITE = 'set -C; echo "written by job $SLURM_JOB_ID on $SLURMD_NODENAME, number $0" >"$1" && cat "$1"'

# States of nodes that take a job at once, in sinfo's long form; and what srun says when there is none.
_FREE = ("idle", "mixed")
_BUSY = "Requested nodes are busy"

# Seconds to wait for nodes that others' jobs use, and for a job to end.
_IMMEDIATE_S = 30
_TIMEOUT_S = 90
# Seconds for which a slurmd that just started, or was configured anew, may not be reached by srun.
_REACHED_S = 15.0
_UNREACHED = "Communication connection failure"
# A step, bounded: the nodes may be busy with others' jobs or drained.
# Quiet: that a job waits for a moment, with which it would be told, is none of what it prints.
_SRUN = ("timeout", str(_TIMEOUT_S), "srun", "--quiet", f"--immediate={_IMMEDIATE_S}")


def prove_if_free(name: str, events: Events) -> Proof | None:
    """`prove`, on those nodes that are free: others' jobs and drains of administrators are no fault.

    Returns None, after a warning, when no node of the default partition is free.
    """
    known = state.require(name)
    with connect(known.engine) as client:
        states = node_states(client, name)
    free = [node for node in known.default_nodes if node in states and states[node].state in _FREE]
    try:
        if free:
            return prove(name, events, free)
    except CellblockError as error:
        if _BUSY not in error.message:
            raise
    events.warning(f"cluster {name}: no job was run to show it at work: its nodes are busy or drained")
    return None


def prove(name: str, events: Events, some: Sequence[str] = ()) -> Proof:
    """Run the proof's jobs in cluster `name`, as PROOF_USER, who is made in the jail when missing.

    They run on the nodes `some`, or on all of the default partition. Raises CellblockError when there is no
    such cluster, the user cannot be made, a job fails, or what one node wrote is not what another reads.
    """
    known = state.require(name)
    started = time.monotonic()
    nodes = list(some) or known.default_nodes
    chosen = [f"--nodelist={','.join(nodes)}"] if nodes != known.default_nodes else []
    writer, reader = nodes[0], nodes[min(len(nodes), 2) - 1]
    with connect(known.engine) as client, events.step("cluster", "proof"):
        ensure_proof_user(client, name)
        run = partial(_in_jail, client, name)
        # The number is the proof's own, so that no earlier file passes for it.
        number = secrets.token_hex(4)
        path = f"{_FOLDER}/cellblock-proof-{number}"
        on_all = (f"--nodes={len(nodes)}", *chosen, "--ntasks-per-node=1")
        output = _reached(run, *_SRUN, *on_all, "sh", "-c", _WHO)
        workers = dict(line.split(" ", 1) for line in sorted(output.splitlines()) if " " in line)
        written = run(*_SRUN, f"--nodelist={writer}", "sh", "-c", _WRITE, number, path).strip()
        read = run(*_SRUN, f"--nodelist={reader}", "cat", path).strip()
        login = run("cat", path).strip()
        run("rm", path)
    if len(workers) != len(nodes):
        raise CellblockError(
            f"the proof's job ran on {len(workers)} of {len(nodes)} workers: {output.strip()}",
            hint=f"`build.py status{name_option(name)}` shows the nodes",
        )
    if number not in written or not written == read == login:
        raise CellblockError(
            f"{writer} wrote {written!r} to {path}, {reader} read {read!r} and the login node {login!r}: "
            "the jail is not shared",
            hint="do all nodes mount the same volume?",
        )
    return Proof(workers, path, writer, reader, written, read, login, time.monotonic() - started)


def _reached(run: Callable[..., str], *command: str) -> str:
    """What a job over all nodes prints; again when srun does not reach a slurmd that has just started."""
    deadline = time.monotonic() + _REACHED_S
    while True:
        try:
            return run(*command)
        except CellblockError as error:
            if _UNREACHED not in error.message or time.monotonic() >= deadline:
                raise
            time.sleep(1)


def _in_jail(client: docker.DockerClient, name: str, *command: str) -> str:
    return execute(client, name, "login", in_jail("env", f"--chdir={_FOLDER}", *command, user=PROOF_USER))
