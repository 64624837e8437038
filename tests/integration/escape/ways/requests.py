# SPDX-License-Identifier: Apache-2.0
"""Attacks by messages to slurmctld with bytes that no command of Slurm would send."""

from __future__ import annotations

import os
import re

from tests.integration.escape.arena import WORKER, Arena, Outcome, broken, escaped, held
from tests.integration.escape.ways.judge import last_line
from tests.integration.local_cluster import Done

_PRELOAD = "env LD_PRELOAD=/escape/lib/odd_requests.so"
# {job} runs and has a step, {held} does not, {array} is one of four tasks.
_COMMANDS = (
    "squeue",
    "squeue -j {job} -s",
    "sinfo",
    "scontrol show job {held}",
    "scontrol show step {job}.0",
    f"scontrol show node {WORKER}",
    "scontrol show partition",
    "scontrol show reservation",
    "scontrol show assoc_mgr",
    "scontrol show licenses",
    "scontrol show config",
    "sprio",
    "sdiag",
    "sshare",
    "sattach {job}.0",
    "sstat -j {job}.0",
    "scontrol update jobid={held} comment=hello timelimit=7 features=worker dependency=afterany:{job}",
    "scontrol update stepid={job}.0 timelimit=100",
    "scontrol hold {array}",
    "scontrol release {array}",
    "scontrol notify {job} hello",
    "scontrol write batch_script {held} -",
    "scontrol requeue {array}",
    "scontrol suspend {job}",
    "scontrol top {held}",
    "sbatch --hold -n1 --output=/dev/null --wrap=true : -n1",
    "salloc --no-shell --immediate=1 -n1",
    f"srun --jobid={{job}} -n1 --overlap -w {WORKER} true",
    "scontrol create reservation starttime=now duration=1 user=root nodes=ALL",
    f"scontrol update nodename={WORKER} state=drain reason=x",
    "scontrol update partitionname=main state=down",
    "scontrol reconfigure",
    "scontrol token",
    "strigger --get",
    "scrontab -l",
    "scancel {array}_[1-3]",
    "scancel --signal=CONT {job}",
    "scancel --state=PENDING -u {user}",
)
# Bytes and what they become: as a number too large, or negative; none; NO_VAL16 and NO_VAL of Slurm's end so.
_BY_DAY = ((4, 0xFF),)
_BY_NIGHT = (*_BY_DAY, (1, 0xFF), (4, 0), (1, 0xFE), (1, 0x7F))
# Of memory, which may be lent only; a thread of slurmctld has 64 MB of its own.
_MOST_MORE_KB = 4_000_000
# Commands whose message is sent, at least; releases differ in which there are.
_FEWEST = 25


def _submitted(arena: Arena, user: str, script: str, *options: str) -> str:
    """A job's number. Behind hundreds of clients that were ended some connections may be given up."""
    tries: list[Done] = []

    def is_taken() -> bool:
        tries.append(arena.submit(script, "-o", "/dev/null", *options, user=user))
        return tries[-1].status == 0

    arena.cluster.wait_until("it takes a job", is_taken)
    return tries[-1].out.strip()


def odd_requests(arena: Arena, user: str) -> Outcome:
    """slurmctld reads each before it knows whether the user may ask for it; by a fault there it ends."""
    before = arena.cluster.numbers_of("controller", "slurmctld")
    kinds = _BY_NIGHT if os.environ.get("CELLBLOCK_ESCAPE_ALL") else _BY_DAY
    told: set[str] = set()
    try:
        for count, value in kinds:
            numbers = {
                name: _submitted(arena, user, script, *options)
                for name, script, options in (
                    ("job", "srun --overlap sleep 900", ()),
                    ("held", "true", ("--hold",)),
                    ("array", "true", ("--hold", "--array=1-4")),
                )
            }
            look = ("squeue", "--noheader", "--steps", "--jobs", numbers["job"])
            step = f"{numbers['job']}.0"
            arena.cluster.wait_until(
                "it has a step",
                lambda: step in arena.cluster.on("controller", *look).out,  # noqa: B023
            )
            for command in _COMMANDS:
                line = command.format(**numbers, user=user)
                odd = f"ODD_BYTES={count} ODD_VALUE={value} {_PRELOAD} timeout 60 {line} </dev/null"
                said = arena.cluster.jail("sh", "-c", odd, user=user).err
                told.update(re.findall(r"^odd: (\d+) in", said, flags=re.MULTILINE))
                if arena.cluster.numbers_of("controller", "slurmctld")[:1] != before[:1]:
                    return escaped(f"slurmctld ended by {line}, {count} bytes {value:#x}: {last_line(said)}")
            arena.cluster.on("controller", "scancel", "-u", user)
    finally:
        arena.cluster.on("controller", "scancel", "-u", user)
        arena.cluster.wait_until_none_completes()
    return held(f"{len(told)} kinds") if len(told) >= _FEWEST else broken(f"sent were {sorted(told)} alone")


def arrays_of_billions(arena: Arena, user: str) -> Outcome:
    """By a message of 41 bytes slurmctld makes room for four billion triggers, and looks through it."""
    number = arena.cluster.numbers_of("controller", "slurmctld")[0]
    look = ("awk", "/^VmSize:/ { print $2 }", f"/proc/{number}/status")
    before = int(arena.cluster.on("controller", *look).ok())
    ask = f"ODD_BYTES=4 {_PRELOAD} timeout 60 strigger --get </dev/null"
    said = arena.cluster.jail("sh", "-c", ask, user=user).err
    if "odd: " not in said:
        return broken(f"nothing was sent: {said}")
    after = arena.cluster.on("controller", *look)
    if after.status:
        return escaped(f"slurmctld ended: {last_line(said)}")
    more = int(after.out) - before
    return escaped(f"it has {more} kB more") if more > _MOST_MORE_KB else held(f"{more} kB more")


def without_hash(arena: Arena, user: str) -> Outcome:
    """A credential that is for any message: whoever has one of a daemon's would send another in its name."""
    variables = ("env", "LD_PRELOAD=/escape/lib/packed_texts.so", "WITHOUT_HASH=1")
    done = arena.cluster.jail(*variables, "timeout", "60", "squeue", user=user)
    if "without hash" not in done.err:
        return broken(f"nothing was sent: {done}")
    return held(last_line(done.err)) if done.status else escaped("slurmctld answers")
