"""What Slurm's daemons do for who is uid 0 or SlurmUser, without asking a plugin."""

from __future__ import annotations

import time

from tests.integration.escape.arena import Arena, Outcome, read
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
