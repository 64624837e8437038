# SPDX-License-Identifier: Apache-2.0
"""Attacks by submitting as users whom the node or Slurm knows as its own, whatever the jail calls them."""

from __future__ import annotations

from tests.integration.escape.arena import OPEN, WORKER, Arena, Outcome, escaped, held
from tests.integration.escape.ways.broadcast import as_user, without_plugins
from tests.integration.escape.ways.judge import changed, fresh, last_line
from tests.integration.jobs import ENDED


def _submits(arena: Arena, uid: int, gid: int) -> Outcome:
    """Root inside becomes him, with commands that nothing checks, and has a step and a batch script run.

    The jail's own list of users knows the uid: for one that is unknown, slurmctld holds the job for ever.
    """
    out = fresh(arena)
    here = arena.inside(out)
    begin = f"cd /; {as_user(uid, gid)} env SLURM_CONF={without_plugins(arena)}"
    step = f"{begin} timeout 60 srun -w {WORKER} sh -c 'touch {here}/step; cat {OPEN}/0'"
    batch = f"{begin} sbatch --parsable -w {WORKER} -o {here}/said --wrap 'touch {here}/batch'"
    passwd = arena.cluster.root / "etc" / "passwd"
    users = passwd.read_text()
    known = f":{uid}:" in users
    with changed(passwd, users if known else f"{users}escape{uid}:x:{uid}:{gid}::/:/bin/sh\n"):
        done = arena.cluster.jail("sh", "-c", step)
        job = arena.cluster.jail("sh", "-c", batch)
        if job.status == 0:
            number = job.out.strip()
            arena.cluster.wait_until("it is over, or held", lambda: _has_ended(arena, number))
            arena.cluster.jail("scancel", number)
    ran = [name for name in ("step", "batch") if (out / name).exists()]
    if ran:
        return escaped(f"uid {uid}, gid {gid}: {', '.join(ran)} ran")
    refused = [line for line in done.err.splitlines() if "spank_jail" in line]
    return held(refused[0] if refused else last_line(done.err))


def _has_ended(arena: Arena, number: str) -> bool:
    state = arena.cluster.job(number)
    return state["JobState"] in ENDED or state["Reason"].startswith("JobHeld")


def munge(arena: Arena, user: str) -> Outcome:
    number = int(arena.variables["MUNGE_UID"])
    return _submits(arena, number, number)


def slurm(arena: Arena, user: str) -> Outcome:
    numbers = arena.on_worker("sh", "-c", "id -u slurm; id -g slurm").ok().split()
    return _submits(arena, int(numbers[0]), int(numbers[1]))


def www_data(arena: Arena, user: str) -> Outcome:
    return _submits(arena, 33, 33)


def last_system_uid(arena: Arena, user: str) -> Outcome:
    return _submits(arena, 999, 1000)


def dynamic_uid(arena: Arena, user: str) -> Outcome:
    """systemd's DynamicUser=."""
    return _submits(arena, 61200, 1000)


def nobody(arena: Arena, user: str) -> Outcome:
    return _submits(arena, 65534, 65534)


def _eve(arena: Arena) -> int:
    return int(arena.cluster.jail("id", "-u", "eve").ok())


def with_group_root(arena: Arena, user: str) -> Outcome:
    return _submits(arena, _eve(arena), 0)


def with_group_shadow(arena: Arena, user: str) -> Outcome:
    return _submits(arena, _eve(arena), 42)


def with_group_tty(arena: Arena, user: str) -> Outcome:
    return _submits(arena, _eve(arena), 5)


def an_ordinary_user(arena: Arena) -> Outcome:
    """What must go on working, and shows that the way is one."""
    uid = _eve(arena)
    return _submits(arena, uid, uid)
