# SPDX-License-Identifier: Apache-2.0
"""Attacks by what Slurm's daemons do for uid 0 or SlurmUser without asking a plugin."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.escape.arena import WORKER, Arena, Outcome, broken, escaped, held, read
from tests.integration.escape.ways.judge import fresh, judge_mark, last_line
from tests.integration.escape.ways.rogue import Place, configure_slurmd

_ROGUES = "worker-2"


def sbcast(arena: Arena, user: str) -> Outcome:
    """Served by slurmd, which asks no SPANK plugin."""
    arena.sbatch(f"sbcast /etc/hostname /root/{arena.mark}", "-o", "/dev/null", user=user)
    return judge_mark(arena, "no file outside", "/root")


def srun_bcast(arena: Arena, user: str) -> Outcome:
    """sbcast by an option."""
    arena.srun("true", options=(f"--bcast=/root/{arena.mark}",), user=user)
    return judge_mark(arena, "no file outside", "/root")


def strigger(arena: Arena, user: str) -> Outcome:
    """Programs that slurmctld runs when something happens, asked for by who is SlurmUser inside."""
    program = f"/usr/bin/touch /tmp/{arena.mark}"
    script = (
        f"setpriv --reuid slurm --regid slurm --clear-groups strigger --set --fini --jobid=$SLURM_JOB_ID"
        f" '--program={program}'"
    )
    out = fresh(arena)
    arena.sbatch(script, "-o", f"{arena.inside(out)}/said", user=user)
    refused = read(out / "said")
    if not refused:
        # slurmctld looks at its triggers every 15 s.
        for _ in range(25):
            outcome = judge_mark(arena, "the program did not run", "/tmp", hostname="controller")
            if outcome.kind == "escaped":
                return outcome
            time.sleep(1)
    return judge_mark(arena, last_line(refused), "/tmp", hostname="controller")


@contextmanager
def _listening(path: Path, uid: int, mode: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(mode)
        os.chown(path, uid, 0)
        listener.listen()
        listener.settimeout(0)
        try:
            yield listener
        finally:
            path.unlink()


def _caller(listener: socket.socket) -> int | None:
    """The uid of who has connected; None: nobody."""
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return None
    with connection:
        process = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", process)[1])


def forwarded_data(arena: Arena, user: str) -> Outcome:
    """slurmd connects to Unix sockets of the node for who asks it, and writes to them.

    Those by which slurmstepd takes orders are open to everybody.
    """
    container = container_name(arena.cluster.request.name, WORKER)
    inspect = ["podman", "inspect", "--format", "{{.State.Pid}}", container]
    process = subprocess.run(inspect, check=True, capture_output=True, text=True).stdout.strip()
    outside = Path(f"/proc/{process}/root/run")
    name = secrets.token_hex(4)
    library = next(arena.cluster.root.glob("usr/lib/*/slurm-wlm/libslurmfull.so"))
    request = ("/escape/forward-data", f"/{library.relative_to(arena.cluster.root)}", WORKER)
    uid = int(arena.cluster.jail("id", "-u", user).ok())
    with ExitStack() as stack:
        kinds = {"own": (uid, 0o700), "roots": (0, 0o700), "open": (0, 0o777)}
        listeners = {
            kind: stack.enter_context(_listening(outside / f"{name}-{kind}", owner, mode))
            for kind, (owner, mode) in kinds.items()
        }
        said = [arena.srun(*request, f"/run/{name}-{kind}", user=user) for kind in kinds]
        reached = {kind: _caller(listener) for kind, listener in listeners.items()}
    if reached["roots"] is not None or reached["open"] is not None or reached["own"] not in (None, uid):
        return escaped(f"slurmd connected to sockets, as these users: {reached}")
    if reached["own"] is None and arena.cluster.status.release == "22.05" and "Unknown error" in said[0].err:
        return Outcome("absent", "the library of Slurm 22.05 serves programs of Slurm alone")
    if reached["own"] is None:
        return broken(f"slurmd connected to nothing: {said}")
    return held(last_line(said[2].out))


def rogue_controller(arena: Arena, user: str) -> Outcome:
    """In a job, on the other worker, which nothing else uses (leave_the_rogue repairs it)."""
    out = fresh(arena)

    def submit(script: str) -> None:
        # The step may have lost its slurmd to the rogue, and srun waits for it.
        limit = ("timeout", "--kill-after=2", "25")
        arena.cluster.jail(*limit, "srun", "-w", _ROGUES, "bash", "-c", script, user=user)

    return configure_slurmd(arena.cluster, _ROGUES, Place(out, arena.inside(out)), arena.mark, submit)


def leave_the_rogue(arena: Arena) -> None:
    """Have the other worker's slurmd obey its own controller again."""
    cluster = arena.cluster
    cluster.restart_slurmd(_ROGUES)
    # Or slurmctld asks for the end of the rogue's job again after a minute or two.
    for state in ("DOWN", "RESUME"):
        update = ("scontrol", "update", f"NodeName={_ROGUES}", f"State={state}", "Reason=rogue")
        # Refused when the node has come back by itself.
        cluster.on("controller", *update)
    cluster.wait_until("it serves", lambda: cluster.on("login", "srun", "-w", _ROGUES, "true").status == 0)
    cluster.wait_until_none_completes()
