# SPDX-License-Identifier: Apache-2.0
"""Attacks by messages to slurmdbd, which has the accounting of all users in one database."""

from __future__ import annotations

import time

from tests.integration.escape.arena import Arena, Outcome, broken, escaped, held
from tests.integration.escape.ways.judge import last_line
from tests.integration.jobs import ended

_PRELOAD = "LD_PRELOAD=/escape/lib/packed_texts.so"
# Stands for what sacctmgr would not send.
_NUMBER, _NAME = "7654321", "anothercluster"
# Seconds until a job that has ended is in the accounting. It takes one or two.
_TOLD_S = 90
# Changes a job, and never says whether that is to stay: sacctmgr asks.
_LEFT_OPEN = """sleep 600 | sacctmgr modify job jobid=$1 set derivedexitcode=3 comment=left >changed 2>&1 &
for i in $(seq 100); do grep -q -e "commit changes" -e rror changed && break; sleep 0.2; done
kill -STOP $!; echo over >>changed; sleep 600"""


def _level(arena: Arena, user: str) -> str:
    asked = ("sacctmgr", "-nP", "show", "user", user, "format=adminlevel")
    return arena.cluster.on("controller", *asked).ok().strip()


def text_as_query(arena: Arena, user: str) -> Outcome:
    """As a number, and as a cluster's name: slurmdbd writes neither as it writes other texts."""
    # Quotes are not needed: the database has other ways to write a name.
    made = f"update user_table set admin_level=3 where name=0x{user.encode().hex()}; commit; select"
    name = arena.cluster.status.name
    tries = (
        (_NUMBER, "1) or (1=1", f"id={_NUMBER}"),
        (_NUMBER, f"1); {made} (1", f"id={_NUMBER}"),
        (_NAME, f'{name}_assoc_table" as t1 where 1=0; {made} 1 from "{name}', f"cluster={_NAME}"),
    )
    said = ""
    for text, sent, where in tries:
        variables = ("env", _PRELOAD, f"PACKED_TEXT={text}", f"PACKED_AS={sent}")
        asked = ("timeout", "60", "sacctmgr", "-nP", "show", "associations", where, "format=user,id")
        done = arena.cluster.jail(*variables, *asked, user=user)
        if "packed: " not in done.err:
            return broken(f"nothing was sent: {done}")
        if _level(arena, user) != "None":
            reset = ("sacctmgr", "-iQ", "modify", "user", user, "set", "adminlevel=None")
            arena.cluster.on("controller", *reset)
            return escaped(f"by {sent!r} a user administers the accounting")
        if "root" in done.out:
            return escaped(f"by {sent!r} a user sees what others have: {done.out}")
        said = last_line(done.err)
    return held(said)


def change_left_open(arena: Arena, user: str) -> Outcome:
    """The row of the user's job is locked; slurmctld's word that it is over waits, and all that follows."""
    changed = arena.out("left-open") / "changed"
    changed.unlink(missing_ok=True)

    def state(job: str) -> str:
        asked = ("timeout", "20", "sacct", "-nXPj", job, "--format=state")
        return arena.cluster.on("controller", *asked).out.strip()

    jobs = [arena.submit("sleep 600", "-o", "/dev/null", user=user).ok().strip()]
    try:
        arena.cluster.wait_until("the accounting has the job", lambda: state(jobs[0]) == "RUNNING")
        script = f"set -- {jobs[0]}\n{_LEFT_OPEN}"
        place = ("-D", arena.inside(changed.parent), "-o", "/dev/null")
        jobs += [arena.submit(script, *place, user=user).ok().strip()]
        arena.cluster.wait_until("it is changed", lambda: changed.exists() and "over" in changed.read_text())
        if "Modified jobs" not in changed.read_text():
            return broken(changed.read_text())
        arena.cluster.on("controller", "scancel", jobs[0]).ok()
        ended(arena.cluster, jobs[0])
        jobs += [arena.submit("true", "-o", "/dev/null").ok().strip()]
        ended(arena.cluster, jobs[2])
        until = time.monotonic() + _TOLD_S
        while state(jobs[2]) != "COMPLETED":
            if time.monotonic() > until:
                return escaped(f"for {_TOLD_S} s nothing reached the accounting, of any user")
            time.sleep(1)
        return held("another's job is in the accounting")
    finally:
        arena.cluster.on("controller", "scancel", *jobs)
