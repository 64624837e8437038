# SPDX-License-Identifier: Apache-2.0
"""Attacks by steps that slurmstepd cannot end, for which the node would be drained.

After KillWait a step gets SIGKILL. If it has not ended UnkillableStepTimeout later, Slurm drains the node.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from tests.integration.escape.arena import WORKER, Arena, Outcome, broken, escaped, held, read
from tests.integration.escape.ways.judge import END_ATTACKS, fresh

# Seconds from scancel on.
_ENDS_S = 75
# Signals and timers that what runs on the machine has at a time are fewer.
_SOME_SIGNALS = 2000
# slurmstepd looks at its processes each second, where the user asks for that; an answer takes less.
_LOOKS_S = 3
_ANSWERS_S = 15
# Longer than slurmstepd waits for all clients, and an answer may take.
_TOLD_S = 270


def _is_over(arena: Arena, job: str) -> bool:
    return not arena.cluster.on("controller", "squeue", "--noheader", f"--jobs={job}").out.strip()


def _cancelled(arena: Arena, job: str) -> Outcome:
    """Whether a running job ends when it is cancelled. If not, its processes are ended here."""
    arena.cluster.on("controller", "scancel", job).ok()
    deadline = time.monotonic() + _ENDS_S
    while not _is_over(arena, job):
        if time.monotonic() > deadline:
            # Some have another name, what looks dead has no command line.
            arena.on_worker("sh", "-c", END_ATTACKS)
            arena.cluster.wait_until("it is over", lambda: _is_over(arena, job))
            return escaped("slurmstepd waits for a process of the job's")
        time.sleep(0.5)
    return held("the job ended")


def _stays(arena: Arena, user: str, script: str, *options: str) -> tuple[str, str]:
    """The number of a job whose script says that it stays, and what else it says."""
    out = fresh(arena)
    job = arena.submit(script, "-n1", *options, "-o", f"{arena.inside(out)}/0", user=user).ok().strip()
    arena.cluster.wait_until("it stays", lambda: "stays" in read(out / "0") or ": " in read(out / "0"))
    return job, read(out / "0")


def _left_alone(arena: Arena, user: str, name: str) -> Outcome:
    job, said = _stays(arena, user, f"exec /escape/attack {name}")
    return _cancelled(arena, job) if "stays" in said else broken(said)


def called_slurmstepd(arena: Arena, user: str) -> Outcome:
    """Proctrack/linuxproc spares what has that name."""
    return _left_alone(arena, user, "called-slurmstepd")


def called_with_fields(arena: Arena, user: str) -> Outcome:
    """A name with blanks and brackets gives the process another parent in /proc/PID/stat."""
    return _left_alone(arena, user, "called-with-fields")


def dead_leader(arena: Arena, user: str) -> Outcome:
    """Proctrack/linuxproc spares what is dead; of this process a thread lives."""
    return _left_alone(arena, user, "dead-leader")


def traced_by_another_job(arena: Arena, user: str, how: str = "keep-traced") -> Outcome:
    """The task ends, and slurmstepd hears of it from the tracer on."""
    traced, said = _stays(arena, user, "echo $$ stays; exec sleep 300")
    tracer, answer = _stays(arena, user, f"TRACED={said.split()[0]} exec /escape/attack {how}")
    try:
        outcome = _cancelled(arena, traced)
    finally:
        arena.cluster.on("controller", "scancel", traced, tracer)
        arena.cluster.wait_until(
            "both are over", lambda: all(_is_over(arena, job) for job in (traced, tracer))
        )
    # At level pid each step sees its own processes alone.
    return outcome if "stays" in answer else held(answer)


def traced_on_its_way_out(arena: Arena, user: str) -> Outcome:
    """The tracer has stopped it where no signal reaches it any more, and its end does not come."""
    return traced_by_another_job(arena, user, "keep-exiting")


def traced_by_an_orphan(arena: Arena, user: str) -> Outcome:
    """The same, by a process of the step itself that is nobody's child any more."""
    out = fresh(arena)
    tracer = "(sleep 1; TRACED=$$ exec setsid /escape/attack keep-traced)"
    script = f"( {tracer} >{arena.inside(out)}/said 2>&1 & )\nexec sleep 300"
    job = arena.submit(script, "-n1", "-o", "/dev/null", user=user).ok().strip()
    arena.cluster.wait_until("the tracer says something", lambda: bool(read(out / "said")))
    outcome = _cancelled(arena, job)
    return outcome if "stays" in read(out / "said") else held(read(out / "said"))


def waits_for_an_orphan(arena: Arena, user: str) -> Outcome:
    """The task asks a file system that a process of no step serves, and does not answer."""
    job, said = _stays(arena, user, "exec /escape/attack wait-for-orphan")
    return _cancelled(arena, job) if "stays" in said else Outcome.read(said)


def waits_for_another_job(arena: Arena, user: str) -> Outcome:
    """The same, where a task of another job serves it."""
    server, said = _stays(arena, user, "exec /escape/attack serve-files")
    try:
        if "stays" not in said:
            return Outcome.read(said)
        number = said.split()[0]
        waiter, answer = _stays(arena, user, f"SERVER={number} exec /escape/attack wait-for-served")
        outcome = _cancelled(arena, waiter)
    finally:
        arena.cluster.on("controller", "scancel", server)
        arena.cluster.wait_until("the server is over", lambda: _is_over(arena, server))
    # At level pid each step sees its own processes alone.
    return outcome if "stays" in answer else Outcome.read(answer)


def _cancelled_where_it_stays(arena: Arena, user: str, attack: str) -> Outcome:
    job, said = _stays(arena, user, f"exec /escape/attack {attack}")
    return _cancelled(arena, job) if "stays" in said else Outcome.read(said)


def waits_for_itself(arena: Arena, user: str) -> Outcome:
    """The task has that file system's /dev/fuse open itself, so that nobody's end is the connection's end."""
    return _cancelled_where_it_stays(arena, user, "wait-for-itself")


def waits_in_a_thread(arena: Arena, user: str) -> Outcome:
    """The same, where a thread asks, and the first one, by which the process looks dead, has ended."""
    return _cancelled_where_it_stays(arena, user, "wait-in-a-thread")


def exits_into_itself(arena: Arena, user: str) -> Outcome:
    """The task exits by itself, and its exit asks a file system that it serves: it seems to sleep."""
    return _cancelled_where_it_stays(arena, user, "exit-into-itself")


def dumps_into_itself(arena: Arena, user: str) -> Outcome:
    """The same with a core file, for which slurmstepd puts off SIGKILL, too."""
    return _cancelled_where_it_stays(arena, user, "dump-into-itself")


def executes_for_ever(arena: Arena, user: str) -> Outcome:
    """Who reads its /proc/PID/stat waits as long as it executes: another user's job must end, too."""
    job, said = _stays(arena, user, "exec /escape/attack execute-for-ever")
    if "stays" not in said:
        return Outcome.read(said)
    other, _ = _stays(arena, "bob", "echo stays; exec sleep 300")
    # As the node's own programs do: when it leaves or slurmd has ended; checks of its health.
    for looks in (
        '. /usr/lib/cellblock/processes.sh; test -n "$(pids_of slurmstepd)"',
        "/usr/lib/cellblock/health/zombies most=100000",
    ):
        done = arena.on_worker("timeout", str(_ANSWERS_S), "sh", "-c", looks)
        if done.status:
            return escaped(f"who looks at processes waits for it: {looks}: {done}")
    outcomes = [_cancelled(arena, one) for one in (other, job)]
    return next((one for one in outcomes if one.kind != "held"), outcomes[0])


def asked_for_numbers(arena: Arena, user: str) -> Outcome:
    """sstat of a step that cannot read what such a process uses: each waits with a thread of slurmd's."""
    job, said = _stays(arena, user, "exec /escape/attack execute-for-ever", "--acctg-freq=task=1")
    if "stays" not in said:
        return Outcome.read(said)
    time.sleep(_LOOKS_S)
    ask = ("sstat", "--noheader", "--format=JobID", f"--jobs={job}.batch")
    asked = arena.cluster.jail("timeout", str(_ANSWERS_S), *ask, user=user)
    outcome = _cancelled(arena, job)
    if f"{job}.batch" in asked.out:
        return outcome
    return escaped("slurmd waits for the step") if asked.status == 124 else broken(str(asked))


def signals_of_root(arena: Arena, user: str) -> Outcome:
    """What the kernel counts by uid: root inside queues more than half of what uid 0 may have on the machine.

    With all, no step of the node begins or ends: slurmstepd tries for ever to tell its threads of a new uid.
    The same would happen to clusters whose tests run beside.
    """
    limits = arena.on_worker("grep", "Max pending signals", "/proc/self/limits").ok()
    half = int(limits.split()[3]) // 2
    over = fresh(arena) / "over"
    variables = f"OVER={arena.inside(over)} MOST={half + 2 * _SOME_SIGNALS}"
    job, said = _stays(arena, user, f"{variables} exec /escape/attack queue-signals")
    daemon = ("prlimit", f"--sigpending={half + _SOME_SIGNALS}", "escape-attack", "have-signal")
    try:
        outside = arena.on_worker(*daemon).out if "stays" in said else said
    finally:
        over.touch()
        arena.cluster.wait_until("it is over", lambda: _is_over(arena, job))
    return Outcome.read(outside)


def stopped_clients(arena: Arena, user: str) -> Outcome:
    """srun and three sattaches that do not answer when slurmstepd tells them of the end."""
    out = fresh(arena)
    here = arena.inside(out)
    script = f"""set -m; srun -w {WORKER} -n1 sh -c 'echo $SLURM_JOB_ID; sleep 15' >{here}/job & sleep 5
        for n in 1 2 3; do sattach $(cat {here}/job).0 >/dev/null & done; sleep 5
        for one in $(jobs -p); do kill -STOP -- -$one; done; : >{here}/stopped
        until [ -e {here}/over ]; do sleep 0.1; done
        for one in $(jobs -p); do kill -KILL -- -$one; done"""
    with ThreadPoolExecutor(1) as pool:
        clients = pool.submit(arena.cluster.jail, "bash", "-c", script, user=user, timeout_s=900)
        try:
            arena.cluster.wait_until("they are stopped", (out / "stopped").exists)
            job = read(out / "job").strip()
            arena.cluster.on("controller", "scancel", job).ok()
            deadline = time.monotonic() + _TOLD_S
            while not _is_over(arena, job) and time.monotonic() < deadline:
                time.sleep(1)
            over = _is_over(arena, job)
        finally:
            (out / "over").touch()
            clients.result()
    arena.cluster.wait_until("it is over", lambda: _is_over(arena, job))
    return held("the job ended") if over else escaped("slurmstepd waits for clients that do not answer")
