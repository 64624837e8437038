# SPDX-License-Identifier: Apache-2.0
"""Attacks by launches and submissions that a user invents and signs with their own credential."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.integration.escape.arena import WORKER, Arena, Outcome, broken, escaped, find_process, held
from tests.integration.escape.configuration import publish
from tests.integration.escape.ways.judge import fresh, last_line

_PRELOAD = "env LD_PRELOAD=/escape/lib/launch.so"
# Whether launches go on to be changed behind what is looked for (`build.py test --thorough`).
EVERY_PLACE = bool(os.environ.get("CELLBLOCK_ESCAPE_ALL"))
# Releases in whose launches no place was a plugin's number: to know that takes 100 s of processor time.
_WITHOUT_NUMBERS = ("22.05",)
# Instead of the minute that is configured: slurmd waits twice as long for word of a job.
_MESSAGE_TIMEOUT_S = 10
# Seconds until slurmd has given up that, and some more.
_GIVES_UP_S = 60
# slurmctld writes its jobs down some seconds after a change.
_WRITES_S = 10
# In two bytes that are nothing else of a submission.
_TASKS_PER_SOCKET = 0x1234
# A job of few words has some 500 bytes in an answer.
_TIMES_ASKED = 200_000
# For the last slurmstepd of a job to end, and for slurmctld to start.
_ENDS_S = 150
# More than a user may have on a node of a few processors.
_STEPS = 240
_STEPS_AT_ONCE = 40
_MOST_STEPS = 200
_BEGUN_S = 300
# Six million ranges of ten names each.
_MANY_NODES = "a[0-999]b[0-5999]c[0-9]"
_MOST_MEMORY_KB = 400_000


def _state(arena: Arena) -> str:
    shown = arena.cluster.on("controller", "scontrol", "--oneliner", "show", "node", WORKER).ok()
    return next(word for word in shown.split() if word.startswith("State="))


def for_no_job(arena: Arena, user: str) -> Outcome:
    """slurmd waits for slurmctld's word of the job, and has the node drained when there is none."""
    with _message_timeout(arena):
        return _launch_for_no_job(arena, user)


@contextmanager
def _message_timeout(arena: Arena) -> Iterator[None]:
    """Lower MessageTimeout on all nodes, for a while."""
    file = arena.cluster.root.parent.parent / "config" / "slurm" / "slurm.conf"
    text = file.read_text()
    lower, count = re.subn(
        r"^MessageTimeout=\d+$", f"MessageTimeout={_MESSAGE_TIMEOUT_S}", text, flags=re.MULTILINE
    )
    assert count == 1, f"{file} sets MessageTimeout {count} times"
    try:
        publish(arena, file, lower)
        yield
    finally:
        publish(arena, file, text)


def _launch_for_no_job(arena: Arena, user: str) -> Outcome:
    complaint = "grep -ac 'REQUEST_LAUNCH_PROLOG notification failed' /var/log/slurm/slurmd.log; true"
    before = arena.on_worker("sh", "-c", complaint).ok()
    step = f"{_PRELOAD} LAUNCH_JOB=1 timeout --kill-after=2 10 srun -n1 --mpi=none true"
    script = f"{step} && echo ran"
    said = arena.cluster.jail("salloc", "-Q", "-w", WORKER, "-n1", "sh", "-c", script, user=user)
    if "credential" in said.err:
        return held(last_line(said.err))
    if "ran" in said.out:
        return Outcome("absent", "the library changes nothing in what this srun sends")
    deadline = time.monotonic() + _GIVES_UP_S
    while arena.on_worker("sh", "-c", complaint).ok() == before:
        if time.monotonic() > deadline:
            return broken(f"slurmd did not wait for the job: {said}")
        time.sleep(1)
    time.sleep(3)  # for slurmctld to hear of it
    if "DRAIN" in (state := _state(arena)):
        update = ("scontrol", "update", f"NodeName={WORKER}", "State=RESUME")
        arena.cluster.on("controller", *update).ok()
        return escaped(f"a user drained the node: {state}")
    return held(state)


def steps_without_end(arena: Arena, user: str) -> Outcome:
    """A step goes on when its srun is killed; its slurmstepd's threads and memory are root's."""
    out = fresh(arena)
    run = "srun --overlap --mem=0 -n1 --mpi=none sleep 600 </dev/null >/dev/null 2>&1 &"
    rounds = _STEPS // _STEPS_AT_ONCE
    loop = f"for n in $(seq {_STEPS_AT_ONCE}); do {run} done; sleep 5; pkill -KILL -x srun"
    script = f"for round in $(seq {rounds}); do {loop}; done; touch {arena.inside(out)}/begun; sleep 600"
    job = arena.submit(script, "-n1", "-o", "/dev/null", user=user).ok().strip()
    try:
        deadline = time.monotonic() + _BEGUN_S
        while not (out / "begun").exists() and time.monotonic() < deadline:
            time.sleep(1)
        if not (out / "begun").exists():
            return broken("the job did not begin all of them")
        found = len(arena.on_worker("pgrep", "slurmstepd").out.split())
        served = arena.srun("true", options=("-n1", "--overcommit"), user="bob")
    finally:
        arena.cluster.on("controller", "scancel", job)
        arena.cluster.wait_until_none_completes()
    if served.status:
        return escaped(f"others have no steps any more: {served.err}")
    return (
        held(f"{found} slurmstepds") if found < _MOST_STEPS else escaped(f"{found} slurmstepds of a user's")
    )


def with_odd_numbers(arena: Arena, user: str) -> Outcome:
    """A number of an MPI plugin that there is none of leaves slurmd and slurmstepd waiting for each other."""
    if arena.cluster.status.release in _WITHOUT_NUMBERS and not EVERY_PLACE:
        return Outcome("absent", "no place of a launch is such a number, as is looked at by night")
    over = fresh(arena) / "over"
    # With 24.11 it is at 58.
    numbers = (*range(54, 110, 2), *range(16, 54, 2), *range(-120, -3, 2))
    places = " ".join(str(number) for number in numbers)
    step = f"{_PRELOAD} LAUNCH_AT=$at timeout --kill-after=1 4 srun --overlap -n1 --mpi=none true"
    loop = f"for at in {places}; do [ ! -e {arena.inside(over)} ] || break; {step} >/dev/null 2>&1; done"
    command = ("salloc", "-Q", "-w", WORKER, "-n1", "sh", "-c", loop)
    complaint = "grep -ac 'unable to resolve MPI plugin offset' /var/log/slurm/slurmd.log; true"
    before = arena.on_worker("sh", "-c", complaint).ok()
    with ThreadPoolExecutor(1) as pool:
        steps = pool.submit(arena.cluster.jail, *command, user=user, timeout_s=300)
        while not steps.done():
            # Of the number's own place all is known; other places keep slurmd computing for seconds.
            if not EVERY_PLACE and arena.on_worker("sh", "-c", complaint).ok() != before:
                over.touch()
            time.sleep(0.5)
        done = steps.result()
    if arena.on_worker("sh", "-c", complaint).ok() == before:
        return Outcome("absent", f"no number was one of a plugin: {last_line(done.err)}")
    deadline = time.monotonic() + _ENDS_S
    while (left := arena.on_worker("pgrep", "-a", "slurmstepd").out) and time.monotonic() < deadline:
        time.sleep(1)
    if left:
        arena.on_worker("pkill", "-KILL", "slurmstepd")
        return escaped(f"slurmstepds wait for ever: {left}")
    return held(_state(arena))


def odd_submissions(arena: Arena, user: str) -> Outcome:
    """What slurmctld wrote down it reads when it starts again, or ends: then a person has to come."""
    before = arena.cluster.numbers_of("controller", "slurmctld")
    # Without variables, for behind them are more fields.
    submit = "sbatch --hold --export=NONE --chdir=/tmp --output=/dev/null --wrap=true"
    arena.cluster.jail("sh", "-c", f"{_PRELOAD} SUBMIT_UP_TO=1250 {submit}", user=user, timeout_s=600).ok()
    if arena.cluster.numbers_of("controller", "slurmctld")[:1] != before[:1]:
        return escaped("slurmctld ended while a user submitted")
    # Names of jobs are no text any more.
    jobs = int(arena.cluster.on("controller", "sh", "-c", "squeue --noheader | wc -l").ok())
    # It writes them down when it ends, and is started again when that is by a signal.
    arena.cluster.on("controller", "scontrol", "reconfigure")
    time.sleep(_WRITES_S)
    arena.cluster.on("controller", "pkill", "-SEGV", "-x", "slurmctld")
    deadline = time.monotonic() + _ENDS_S
    while serves := arena.cluster.on("controller", "scontrol", "ping").status:
        if time.monotonic() > deadline:
            break
        time.sleep(1)
    if serves:
        arena.cluster.on("controller", "sh", "-c", "rm -f /var/lib/slurm/slurmctld/job_state*")
        arena.cluster.wait_until(
            "it serves", lambda: arena.cluster.on("controller", "scontrol", "ping").status == 0
        )
        return escaped("slurmctld does not start with what a user submitted")
    arena.cluster.on("controller", "scancel", "-u", user)
    return held(f"slurmctld has started with {jobs} jobs") if jobs else broken("nothing was submitted")


def broadcast_for_no_step(arena: Arena, user: str) -> Outcome:
    """Asked for a step that there is none of, slurmctld gives up locks twice, and waits for ever."""
    job = arena.submit("sleep 300", "-o", "/dev/null", user=user).ok().strip()
    asked = ("squeue", "--noheader", "--states=running", "--jobs", job)
    try:
        arena.cluster.wait_until("it runs", lambda: job in arena.cluster.on("controller", *asked).out)
        command = ("sbcast", "--force", "-j", f"{job}.77", "/etc/passwd", "/run/bcast/x")
        done = arena.cluster.jail("timeout", "20", *command, user=user)
        update = ("timeout", "30", "scontrol", "update", f"JobId={job}", "Comment=there")
        served = arena.cluster.on("controller", *update)
        if served.status:
            arena.cluster.on("controller", "pkill", "-KILL", "-x", "slurmctld")
            arena.cluster.wait_until("it serves", lambda: arena.cluster.on("controller", *asked).status == 0)
            return escaped(f"slurmctld serves nobody: {served.err}")
        return (
            held(last_line(done.err)) if "invalid" in done.err.lower() else broken(f"it was served: {done}")
        )
    finally:
        arena.cluster.on("controller", "scancel", job)


def flag_of_slurmctlds_own(arena: Arena, user: str) -> Outcome:
    """By a flag of a header slurmctld locks nothing for the message; its answer has the flags it took."""
    shown = arena.cluster.jail("sh", "-c", f"{_PRELOAD} HEADER_FLAGS=32 scontrol show jobs", user=user)
    told = re.search(r"^flags of the answer: (\d+)$", shown.err, flags=re.MULTILINE)
    if not told:
        return broken(f"there was no answer: {shown}")
    return escaped("slurmctld took it") if int(told[1]) & 32 else held(told[0])


def one_job_many_times(arena: Arena, user: str) -> Outcome:
    """slurmctld answers for each job that a question names, its locks held: here 100 MB."""
    job = arena.submit("true", "-o", "/dev/null", "--hold", user=user).ok().strip()
    ask = f"{_PRELOAD} ASK_JOB={job} ASK_JOBS="
    try:
        once = arena.cluster.jail("sh", "-c", f"{ask}1 squeue --noheader --format=%i", user=user)
        if once.out.split() != [job]:
            return broken(f"it did not ask for the job: {once}")
        often = arena.cluster.jail("sh", "-c", f"{ask}{_TIMES_ASKED} squeue --noheader | wc -l", user=user)
    finally:
        arena.cluster.on("controller", "scancel", job)
    return escaped(f"it was answered {often.out} lines") if int(often.out) else held(last_line(often.err))


def no_tasks_per_socket(arena: Arena, user: str) -> Outcome:
    """slurmctld divides by their number; changed later, such a job ends it whenever it starts."""
    before = arena.cluster.numbers_of("controller", "slurmctld")
    options = f"--hold -n2 --ntasks-per-socket={_TASKS_PER_SOCKET} --output=/dev/null --wrap=true"
    submit = f"{_PRELOAD} CLEAR_NUMBER={_TASKS_PER_SOCKET} sbatch {options}"
    done = arena.cluster.jail("sh", "-c", submit, user=user)
    arena.cluster.wait_until("it serves", lambda: arena.cluster.on("controller", "squeue").status == 0)
    arena.cluster.on("controller", "scancel", "-u", user)
    if "cleared" not in done.err:
        return broken(f"nothing was changed: {done}")
    if arena.cluster.numbers_of("controller", "slurmctld") != before:
        return escaped(f"slurmctld ended: {last_line(done.err)}")
    return held(last_line(done.out))


def step_without_figures(arena: Arena, user: str) -> Outcome:
    """srun says that a step which did not start is over; slurmctld reads figures of all kinds there are."""
    before = arena.cluster.numbers_of("controller", "slurmctld")
    step = f"{_PRELOAD} NO_FIGURES=1 timeout --kill-after=2 10 srun -n1 --mpi=none true"
    done = arena.cluster.jail("salloc", "-Q", "-w", WORKER, "-n1", "sh", "-c", step, user=user)
    arena.cluster.wait_until("it serves", lambda: arena.cluster.on("controller", "squeue").status == 0)
    if "figures of no kind" not in done.err:
        return broken(f"nothing was sent: {done}")
    if arena.cluster.numbers_of("controller", "slurmctld") != before:
        return escaped(f"slurmctld ended: {last_line(done.err)}")
    return held(last_line(done.err))


def _launch_with(arena: Arena, user: str, old: str, new: str, options: str) -> str:
    """A step in which one text is replaced by another, for some seconds; what is said."""
    step = (
        f"PACK_FOR='{old}' PACKED='{new}' {_PRELOAD} timeout -s KILL 8 srun --overlap -n1 {options} sleep 4"
    )
    return arena.cluster.jail("salloc", "-Q", "-w", WORKER, "-n1", "sh", "-c", step, user=user).err


def for_many_nodes(arena: Arena, user: str) -> Outcome:
    """For the worker and millions of others: slurmd makes the list before it looks at the credential."""
    peak = ("awk", "/^VmHWM:/ { print $2 }", f"/proc/{find_process(arena.cluster, 'slurmd')}/status")
    before = int(arena.on_worker(*peak).ok())
    said = _launch_with(arena, user, WORKER, f"{WORKER},{_MANY_NODES}", "--mpi=none")
    more = int(arena.on_worker(*peak).ok()) - before
    return escaped(f"slurmd had {more} kB more") if more > _MOST_MEMORY_KB else held(last_line(said))


def with_many_nodes_for_pmi2(arena: Arena, user: str) -> Outcome:
    """The same, for slurmstepd, in the environment of the step."""
    name = "SLURM_PMI2_STEP_NODES="
    peaks = "for n in $(pidof slurmstepd); do awk '/^VmHWM:/ { print $2 }' /proc/$n/status; done"
    most = 0
    with ThreadPoolExecutor(1) as thread:
        step = thread.submit(_launch_with, arena, user, name, f"{name}{WORKER},{_MANY_NODES}", "--mpi=pmi2")
        while not step.done():
            most = max(most, *map(int, arena.on_worker("sh", "-c", peaks).out.split()), 0)
            time.sleep(0.3)
    return escaped(f"slurmstepd had {most} kB") if most > _MOST_MEMORY_KB else held(last_line(step.result()))


@contextmanager
def _gpus(arena: Arena) -> Iterator[None]:
    """Have the worker's node be one of four GPUs, which need not be there, for a while."""
    file = arena.cluster.root.parent.parent / "config" / "slurm" / "slurm.conf"
    text = file.read_text()
    update = ("scontrol", "update", f"NodeName={WORKER}")
    try:
        publish(arena, file, f"{text}GresTypes=gpu\nSlurmdParameters=config_overrides\n")
        arena.cluster.on("controller", *update, "Gres=gpu:4")
        yield
    finally:
        arena.cluster.on("controller", *update, "Gres=")
        publish(arena, file, text)


def spread_over_gpus(arena: Arena, user: str) -> Outcome:
    """slurmctld (24.11) writes through a null pointer when it looks for nodes."""
    with _gpus(arena):
        before = arena.cluster.numbers_of("controller", "slurmctld")
        spread = ("sbatch", "--spread-job", "--gpus=2", "-N1", "--output=/dev/null", "--wrap=true")
        done = arena.cluster.jail(*spread, user=user)
        arena.cluster.wait_until("it serves", lambda: arena.cluster.on("controller", "squeue").status == 0)
        after = arena.cluster.numbers_of("controller", "slurmctld")
        arena.cluster.on("controller", "scancel", "-u", user)
        arena.cluster.wait_until_none_completes()
    if after != before:
        return escaped(f"slurmctld ended: {last_line(done.err)}")
    if done.status:
        return Outcome("absent", f"this release has no such GPUs: {last_line(done.err)}")
    return held(last_line(done.out))
