# SPDX-License-Identifier: Apache-2.0
"""Attacks by MPI of a step: the PMIx server and Slurm's plugins, in slurmstepd outside and in srun."""

from __future__ import annotations

import re
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.escape.arena import OPEN, WORKER, Arena, Outcome, broken, escaped, held, read
from tests.integration.escape.ways.judge import fresh, last_line

_CLIENT = "/escape/pmix-client"
_MESSAGES = "/escape/pmi-messages"
# Bytes that buffers of sockets may hold, of the 64 MiB that are sent.
_BUFFERS = 48 << 20


def _absent(arena: Arena) -> Outcome | None:
    """Debian's Slurm has no PMIx from 26.05 on."""
    listed = arena.cluster.jail("srun", "--mpi=list")
    return None if "pmix" in listed.out + listed.err else Outcome("absent", "this Slurm has no PMIx")


def remove_by_pmix(arena: Arena, user: str) -> Outcome:
    """The server removes what a task registers, when the task or the step ends."""
    if absent := _absent(arena):
        return absent
    path = f"{OPEN}/registered-{secrets.token_hex(4)}"
    arena.on_worker("sh", "-c", f"umask 077; : >{path}").ok()
    said = ""
    for end in ((), ("end",)):
        done = arena.srun(_CLIENT, "remove", path, *end, options=("--mpi=pmix", "-n1"), user=user)
        said += done.out + done.err
        if arena.on_worker("test", "-e", path).status:
            return escaped(f"{path} was removed")
    if "answered" not in said:
        return broken(f"no task asked: {said}")
    return held(last_line(said))


def join_by_pmix(arena: Arena, user: str) -> Outcome:
    """A process of `user` joins a step of bob's, by the name and the uid of a task there."""
    if absent := _absent(arena):
        return absent
    out = fresh(arena)
    here = arena.inside(out)
    uid = arena.cluster.jail("id", "-u", "bob").ok().strip()
    task = f"env >{here}/variables.new; mv {here}/variables.new {here}/variables"
    wait = f"until [ -e {here}/over ]; do sleep 0.1; done; {_CLIENT} join"
    login = ["podman", "exec", container_name(arena.cluster.request.name, "login")]
    step = ["srun", "-w", WORKER, "-n1", "--mpi=pmix", "sh", "-c", f"{task}; {wait}"]
    command = [*login, "jail-enter", "--user", "bob", "--", *step]
    bob = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        arena.cluster.wait_until("bob's step runs", lambda: bool(read(out / "variables")))
        known = [line for line in read(out / "variables").splitlines() if line.startswith("PMIX_")]
        known += ["PMIX_SECURITY_MODE=native", f"SAID_UID={uid}"]
        join = f"timeout 10 env {shlex.join(known)} {_CLIENT} join"
        # More than once: what fails halfway is what a server forgets to tidy up.
        script = f"for i in 1 2 3 4 5; do {join}; done; true"
        done = arena.srun("sh", "-c", script, options=("--mpi=none", "-n1"), user=user)
    finally:
        (out / "over").touch()
        end = bob.communicate(timeout=60)[0]
    if "joined" in done.out:
        return escaped(f"{user} is a task of bob's")
    if "refused" not in done.out:
        return broken(f"no task asked: {done.out}{done.err}")
    if bob.returncode or "joined: 0" not in end:
        return escaped(f"bob's step is not what it was: {bob.returncode}, {end}")
    return held(last_line(done.out))


def fill_the_spool(arena: Arena, user: str) -> Outcome:
    """By sbcast and --output into the server's directory: slurmd drains a node whose spool is full."""
    if absent := _absent(arena):
        return absent
    here = arena.inside(fresh(arena))
    script = f"""cd /
        srun -n1 --overlap --mpi=pmix sh -c ': >{here}/runs; until [ -e {here}/over ]; do sleep 0.1; done' &
        until [ -e {here}/runs ]; do sleep 0.1; done
        sbcast -f /etc/passwd /var/spool/slurmd/pmix.$SLURM_JOB_ID.0/brought && echo brought
        : >{here}/over; wait
        srun -n1 --overlap --mpi=pmix --output='/var/spool/slurmd/pmix.%j.%s/said-%t' \\
            sh -c 'readlink /proc/self/fd/1 >&2'"""
    done = arena.cluster.jail("timeout", "60", "salloc", "-Q", "-w", WORKER, "sh", "-c", script, user=user)
    if "brought" in done.out.split() or "/var/spool" in done.out:
        return escaped(f"a file in slurmd's spool: {done.out}")
    if "sbcast" not in done.err:
        return broken(f"no job ran: {done}")
    return held(last_line(done.err))


def _owned_in_spool(arena: Arena, user: str, option: str, variable: str) -> str:
    """What of slurmd's spool is the user's while a step with `option` runs.

    The script and sockets may be.
    """
    out = fresh(arena)
    here = arena.inside(out)
    uid = arena.cluster.jail("id", "-u", user).ok().strip()
    wait = f"sh -c ': >{here}/runs; until [ -e {here}/over ]; do sleep 0.1; done'"
    job = arena.submit(f"{variable} srun -n1 {option} {wait}", "-n1", "-o", f"{here}/said", user=user)
    kinds = f"-user {uid} ! -type s ! -name slurm_script"
    try:
        arena.cluster.wait_until("the step runs", lambda: (out / "runs").exists())
        return arena.on_worker("sh", "-c", f"find /var/spool {kinds} -exec ls -ld {{}} +").ok().strip()
    finally:
        (out / "over").touch()
        arena.wait(job)


def directories(arena: Arena, user: str) -> Outcome:
    """Slurm's plugins make directories in the spool, and give them to the user, who may name one himself."""
    ways = [("--mpi=cray_shasta", ""), ("--mpi=pmi2", "")]
    if _absent(arena) is None:
        ways += [("--mpi=pmix", "SLURM_PMIX_TMPDIR=/var/spool/slurmd"), ("--mpi=pmix", "")]
    for option, variable in ways:
        if found := _owned_in_spool(arena, user, option, variable):
            return escaped(f"with {option} {variable} the user has {found}")
    return held("all in the spool is root's")


@contextmanager
def _running_step(arena: Arena, user: str, option: str, out: Path) -> Iterator[subprocess.Popen[str]]:
    """A running step of `user` on the worker, from the login node; it ends by itself at the end."""
    here = arena.inside(out)
    wait = f": >{here}/runs; until [ -e {here}/over ]; do sleep 0.1; done"
    login = ["podman", "exec", container_name(arena.cluster.request.name, "login")]
    step = ["srun", "-w", WORKER, "-n1", option, "sh", "-c", f"echo $SLURM_JOB_ID >{here}/job; {wait}"]
    command = [*login, "jail-enter", "--user", user, "--", *step]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        arena.cluster.wait_until("the step runs", lambda: (out / "runs").exists())
        yield running
    finally:
        (out / "over").touch()
        # It waits for ever for a slurmstepd that is gone.
        with suppress(subprocess.TimeoutExpired):
            running.wait(15)
        running.kill()
        running.wait()
        arena.cluster.jail("scancel", "-u", user, user=user)


def _listeners(arena: Arena, hostname: str, uid: int) -> list[int]:
    """TCP ports above 1023 on which processes of `uid` listen for other machines."""
    lines = arena.cluster.on(hostname, "cat", "/proc/net/tcp").ok().splitlines()[1:]
    fields = [line.split() for line in lines]
    ports = [int(one[1].partition(":")[2], 16) for one in fields if one[3] == "0A" and int(one[7]) == uid
             and one[1].startswith("00000000:")]  # fmt: skip
    return [port for port in ports if port > 1023]


def direct_port(arena: Arena, user: str) -> Outcome:
    """mpi_pmix listens for slurmstepds of other nodes, and sets memory aside for whoever connects."""
    if absent := _absent(arena):
        return absent
    out = fresh(arena)
    with _running_step(arena, "bob", "--mpi=pmix", out) as step:
        ports = _listeners(arena, WORKER, 0)
        if not ports:
            return broken("slurmstepd listens nowhere")
        sends = "; ".join(f"timeout 10 {_MESSAGES} direct {WORKER} {port}" for port in ports)
        done = arena.srun("sh", "-c", f"{sends}; true", options=("--mpi=none", "-n1"), user=user)
        (out / "over").touch()
        end = step.communicate(timeout=60)[0]
    taken = [int(number) for number in re.findall(r"taken: (\d+)", done.out)]
    if max(taken, default=0) > _BUFFERS:
        return escaped(f"slurmstepd of bob's took {max(taken)} bytes from {user}")
    if step.returncode:
        return escaped(f"bob's step is not what it was: {step.returncode}, {end}")
    return held(last_line(done.out)) if taken else broken(f"nothing was sent: {done}")


def far_node_to_stepd(arena: Arena, user: str) -> Outcome:
    """mpi_pmi2 takes a node's number in a message for a place in slurmstepd's memory."""
    out = fresh(arena)
    library = next(arena.cluster.root.glob("usr/lib/*/slurm-wlm/libslurmfull.so"))
    with _running_step(arena, user, "--mpi=pmi2", out) as step:
        job = read(out / "job").strip()
        socket = f"/var/spool/slurmd/sock.pmi2.{job}.0"
        if arena.on_worker("test", "-S", socket).status:
            return broken(f"the step has no {socket}")
        inside = f"/{library.relative_to(arena.cluster.root)}"
        send = ("/escape/forward-data", inside, WORKER, socket, "fence")
        done = arena.cluster.jail(*send, user=user)
        alive = arena.on_worker("pgrep", "-f", rf"slurmstepd: \[{job}[.]0\]")
        (out / "over").touch()
        end = step.communicate(timeout=60)[0] if alive.status == 0 else "slurmstepd is gone"
    if alive.status or step.returncode:
        return escaped(f"the user wrote into slurmstepd's memory: {end}")
    if arena.cluster.status.release == "22.05" and "Unknown error" in done.out + done.err:
        return Outcome("absent", "the library of Slurm 22.05 serves programs of Slurm alone")
    return held(last_line(done.out)) if "answered 0" in done.out else broken(f"nothing was sent: {done}")


def far_node_to_srun(arena: Arena, user: str) -> Outcome:
    """The same in srun, of another user."""
    out = fresh(arena)
    bob = int(arena.cluster.jail("id", "-u", "bob").ok())
    with _running_step(arena, "bob", "--mpi=pmi2", out) as step:
        ports = _listeners(arena, "login", bob)
        if not ports:
            return broken("srun listens nowhere")
        sends = "; ".join(f"timeout 10 {_MESSAGES} tree login {port}" for port in ports)
        done = arena.srun("sh", "-c", f"{sends}; true", options=("--mpi=none", "-n1"), user=user)
        (out / "over").touch()
        end = step.communicate(timeout=60)[0]
    if step.returncode:
        return escaped(f"bob's srun is not what it was: {step.returncode}, {end}")
    return held(last_line(done.out)) if "ended" in done.out else broken(f"nothing was sent: {done}")
