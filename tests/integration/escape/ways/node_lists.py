# SPDX-License-Identifier: Apache-2.0
"""Attacks by lists that slurmctld has no memory or time for: a few letters stand for billions of nodes."""

from __future__ import annotations

from tests.integration.escape.arena import Arena, Outcome, broken, escaped, held
from tests.integration.escape.ways.judge import last_line

# 4,294,967,296 names; that many in a third bracket fill the memory first.
_BILLIONS = "a[0-65535]b[0-65535]"
# Seconds. Of a list that is refused slurmctld's answer takes some ms.
_ANSWERS_S = 20


def of_billions(arena: Arena, user: str) -> Outcome:
    """As a submission's, as a change of a job, and as a step's in a job."""
    waiting = arena.submit("true", "-o", "/dev/null", "--hold", user=user).ok().strip()
    limit = ("timeout", str(_ANSWERS_S))
    step = f"srun -n1 --exclude='{_BILLIONS}' true"
    tries = {
        "sbatch": ("sbatch", "--exclude", _BILLIONS, "--wrap", "true"),
        "scontrol": ("scontrol", "update", f"JobId={waiting}", f"ExcNodeList={_BILLIONS}"),
        "srun": ("srun", "-n1", "--export=ALL", "sh", "-c", step),
    }
    said = ""
    try:
        for name, command in tries.items():
            done = arena.cluster.jail(*limit, *command, user=user)
            # It changes the job, for which it needs every lock.
            served = arena.cluster.on(
                "controller", *limit, "scontrol", "update", f"JobId={waiting}", "Comment=there"
            )
            if served.status:
                arena.cluster.on("controller", "pkill", "-KILL", "-x", "slurmctld")
                arena.cluster.wait_until(
                    "it serves", lambda: arena.cluster.on("controller", "squeue").status == 0
                )
                return escaped(f"slurmctld serves nobody after {name}: {last_line(served.err)}")
            said = last_line(done.err)
            if name != "srun" and "invalid" not in said.lower():
                return broken(f"{name} was served: {done}")
        return held(said)
    finally:
        arena.cluster.on("controller", "scancel", waiting)


def by_a_step_manager(arena: Arena, user: str) -> Outcome:
    """`--stepmgr` has a slurmstepd of root's, outside, read such lists: it goes on when the job is over."""
    submitted = arena.submit("sleep 120", "-o", "/dev/null", "--stepmgr", user=user)
    if submitted.status:
        return held(last_line(submitted.err))  # of releases that have no such option
    job = submitted.out.strip()
    try:

        def extern() -> str:
            lines = arena.on_worker("ps", "-eo", "args").out.splitlines()
            return next((line for line in lines if line.startswith(f"slurmstepd: [{job}.extern")), "")

        # Slurm calls a job running before its extern step is there.
        arena.cluster.wait_until("its extern step", lambda: bool(extern()))
        found = extern()
        return escaped(found) if "stepmgr" in found else held(found)
    finally:
        arena.cluster.on("controller", "scancel", job)


def _asked(arena: Arena, user: str, lines: str, refusal: str) -> Outcome:
    """A script whose options slurmctld must refuse, and go on."""
    before = arena.cluster.on("controller", "pidof", "slurmctld").out
    script = f"printf '#!/bin/sh\\n#SBATCH {lines}\\ntrue\\n' | sbatch --output=/dev/null"
    done = arena.cluster.jail("timeout", str(_ANSWERS_S), "sh", "-c", script, user=user)
    # The scheduler's turn, for what it took.
    arena.cluster.on("controller", "sleep", "5")
    arena.cluster.wait_until("it serves", lambda: arena.cluster.on("controller", "squeue").status == 0)
    if arena.cluster.on("controller", "pidof", "slurmctld").out != before:
        return escaped(f"slurmctld ended: {last_line(done.err)}")
    arena.cluster.on("controller", "scancel", "-u", user)
    return held(done.err) if refusal in done.err else escaped(f"it was served: {done}")


def of_many_features(arena: Arena, user: str) -> Outcome:
    """Of more than 64 slurmctld writes beyond its memory for them."""
    return _asked(
        arena, user, f"--constraint=[{'|'.join(['worker'] * 120)}]", "Invalid feature specification"
    )


def of_many_licenses(arena: Arena, user: str) -> Outcome:
    """Each is compared with all before it; 60,000 take ten seconds."""
    licenses = ",".join(f"l{number}" for number in range(3000))
    return _asked(arena, user, f"--licenses={licenses}", "too long")


def of_many_dependencies(arena: Arena, user: str) -> Outcome:
    """Each is compared with all before it; 80,000 take half a minute."""
    tasks = ":".join(f"{job}_[0-1000]" for job in range(1, 3))
    submitted = _asked(arena, user, f"--dependency=afterany:{tasks}", "Job dependency problem")
    if submitted.kind != "held":
        return submitted
    # Of an array, a change is one of each task.
    waiting = arena.submit("true", "-o", "/dev/null", "--hold", user=user).ok().strip()
    change = ("scontrol", "update", f"JobId={waiting}", "Dependency=afterany:1_[0-500]")
    done = arena.cluster.jail(*change, user=user)
    arena.cluster.on("controller", "scancel", waiting)
    return submitted if done.status else escaped(f"the change was served: {done}")


def of_ranges_with_a_step(arena: Arena, user: str) -> Outcome:
    """It makes room for as many numbers, which it counts in 32 bits, before it looks what they are for."""
    numbers = "-1073741824-1073741824:1"
    return _asked(arena, user, f"--hold --dependency=afterany:1_[{numbers}]", "Job dependency problem")


def of_resources_of_a_step(arena: Arena, user: str) -> Outcome:
    """For each of a step's it copies all that are left; 200,000 took eight seconds."""
    step = f"srun --gres={','.join(['x:0'] * 400)} echo ran"
    done = arena.cluster.jail("timeout", str(_ANSWERS_S), "salloc", "-n1", "sh", "-c", step, user=user)
    if "ran" in done.out and arena.cluster.status.release == "22.05":
        return Outcome("absent", "it clears those of which none are asked for, before it looks at them")
    if "ran" in done.out:
        return escaped("it was served")
    # "Invalid generic resource (gres) specification", or "Invalid Trackable RESource (TRES) specification".
    return held(done.err) if "res) spec" in done.err.lower() else broken(f"another refusal: {done}")


def of_long_arguments(arena: Arena, user: str) -> Outcome:
    """It keeps them in its records, which have room for 4 GB, and starts with none that are larger."""
    script = (
        "script=$(mktemp); printf '#!/bin/sh\ntrue\n' >$script; long=$(printf %070000d 0);"
        " sbatch --hold --output=/dev/null $script $long $long"
    )
    done = arena.cluster.jail("timeout", str(_ANSWERS_S), "sh", "-c", script, user=user)
    arena.cluster.on("controller", "scancel", "-u", user)
    return held(done.err) if "too long" in done.err else escaped(f"it was served: {done}")
