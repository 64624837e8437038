# SPDX-License-Identifier: Apache-2.0
"""Attacks by unusual steps: their options, variables, prologs, and a tree that changes under them."""

from __future__ import annotations

import subprocess
import time

from tests.integration.escape.arena import WORKER, Arena, Outcome, broken, escaped, held, read
from tests.integration.escape.ways.judge import changed, fresh, judge_secret, last_line


def enter_init(arena: Arena, user: str) -> Outcome:
    """util-linux' own way."""
    done = arena.srun("nsenter", "-t", "1", "-m", "cat", arena.canary, user=user)
    return judge_secret(arena, done.out, last_line(done.err))


def _mounts_outside(arena: Arena) -> int:
    return int(arena.on_worker("sh", "-c", "grep -vc /run/cellblock/jail/ /proc/1/mountinfo").ok())


def swapped_targets(arena: Arena, user: str) -> Outcome:
    """Somebody on another node swaps what the plan mounts on for links, while steps start here."""
    root = arena.cluster.root
    pairs = [(root / "etc/slurm", "/proc/1/root/root"), (root / "var/spool", "/../../../../../../root")]
    before = _mounts_outside(arena)
    program = arena.folder / "attack"
    swapping = []
    for path, target in pairs:
        link = path.with_name(f"{path.name}-link")
        link.symlink_to(target)
        swapping.append(subprocess.Popen([program, "swap"], env={"PATH_A": str(path), "PATH_B": str(link)}))
    try:
        # Each round in one allocation: what is looked for is in the steps' starts.
        script = (
            "for i in $(seq 50); do srun --overlap -n1 --immediate=30"
            f" sh -c 'cat {arena.canary} /etc/slurm{arena.canary} /var/spool{arena.canary}; echo ran' &"
            " (( i % 10 )) || wait; done; wait"
        )
        # From outside the jail: the commands themselves would miss their configuration inside.
        done = arena.on_worker("salloc", "-w", WORKER, "--overcommit", "bash", "-c", script)
    finally:
        for process in swapping:
            process.terminate()
            process.wait()
        for path, _ in pairs:
            link = path.with_name(f"{path.name}-link")
            if path.is_symlink():
                path.unlink()
                link.rename(path)
            else:
                link.unlink()
    arena.cluster.on("controller", "scontrol", "update", f"NodeName={WORKER}", "State=RESUME")
    # The job's own, which its epilog takes away.
    for _ in range(60):
        if (after := _mounts_outside(arena)) == before:
            break
        time.sleep(0.5)
    if arena.secret in done.out or "canary-" in done.out:
        return escaped("a step saw the outside's files")
    if "ran" not in done.out:
        return broken(f"no step ran: {done.err[-2000:]}")
    if before != after:
        return escaped(f"mounts outside: {before} before, {after} after")
    return held("50 steps saw the jail, or nothing")


def _prolog(arena: Arena, user: str, option: str) -> Outcome:
    """`option` names a program that Slurm runs around the task; BASH_ENV makes it another."""
    out = fresh(arena)
    name = arena.inside(out)
    look = f"cat {arena.canary} >>/mnt/jail/root{name}/seen 2>/dev/null\ncat {arena.canary} >>{name}/seen\n"
    own, other = out / "own.sh", out / "other.sh"
    own.write_text(f"#!/bin/sh\n{look}echo own >>{name}/ran\n")
    other.write_text(f"{look}echo other >>{name}/ran\n")
    own.chmod(0o755)
    arena.srun("true", options=(f"--task-{option}={name}/own.sh",), user=user)
    variables = f"BASH_ENV={name}/other.sh"
    command = ("env", variables, "srun", "-w", WORKER, f"--task-{option}=/bin/bash", "true")
    arena.cluster.jail(*command, user=user)
    # Slurm 22.05 looks for an epilog on the node, where the job's own is not.
    on_the_node = option == "epilog" and arena.cluster.status.release == "22.05"
    programs = {"other"} if on_the_node else {"own", "other"}
    # The epilog's end is not waited for by srun.
    arena.cluster.wait_until(f"the {option}s ran", lambda: programs <= set(read(out / "ran").split()))
    return judge_secret(arena, read(out / "seen"), f"the {option} ran in the jail")


def task_prolog(arena: Arena, user: str) -> Outcome:
    return _prolog(arena, user, "prolog")


def task_epilog(arena: Arena, user: str) -> Outcome:
    return _prolog(arena, user, "epilog")


def steering_variables(arena: Arena, user: str) -> Outcome:
    """What the plugin reads must not come from the job."""
    variables = {
        "SLURMD_NODENAME": "../../../root",
        "SLURM_CONF": "/escape/slurm.conf",
        "SLURM_PLUGSTACK": "/escape/plugstack.conf",
        "SLURM_LEVEL": "none",
        "SLURM_SPANK_JAIL_ROOT": "/",
        "SPANK_JAIL_ROOT": "/",
        "CELLBLOCK_JAIL_ROOT": "/",
        "_SLURM_SPANK_OPTION_jail_no_jail": "1",
        "SLURM_NO_JAIL": "1",
        "SPANK__SLURM_SPANK_OPTION_jail_no_jail": "1",
    }
    exported = ",".join(f"{key}={value}" for key, value in variables.items())
    script = f"cat {arena.canary}; head -1 /etc/cellblock/jail-release"
    one = arena.srun("sh", "-c", script, options=(f"--export=ALL,{exported}",), user=user)
    plain = {key: value for key, value in variables.items() if key != "SLURM_CONF"}
    command = ("env", *(f"{key}={value}" for key, value in plain.items()), "srun", "-w", WORKER)
    two = arena.cluster.jail(*command, "sh", "-c", script, user=user)
    return judge_secret(arena, one.out + two.out, f"{last_line(one.out)}; {last_line(two.out)}")


def no_jail(arena: Arena, user: str) -> Outcome:
    """Root inside a job is uid 0 to Slurm, and may forget that it is in a job."""
    out = fresh(arena)
    here = arena.inside(out)
    attempts = (
        f"srun --overlap --no-jail cat {arena.canary}",
        f"env -i PATH=$PATH srun --immediate=5 -w {WORKER} --overcommit --no-jail cat {arena.canary}",
        f"env -i PATH=$PATH sbatch --no-jail -o {here}/batch --wrap 'cat {arena.canary}'",
        f"SLURM_NO_JAIL=1 srun --overlap cat {arena.canary}",
        f"SLURM_SPANK_JAIL_NO_JAIL=1 SBATCH_NO_JAIL=1 srun --overlap cat {arena.canary}",
    )
    script = "\n".join(f"{attempt} >>{here}/seen 2>&1" for attempt in attempts)
    arena.sbatch(script, "-o", "/dev/null", user=user)
    batch = arena.sbatch(
        f"#SBATCH --no-jail\ncat {arena.canary}", "-o", f"{here}/own", user=user, refusable=True
    )
    text = "".join(read(out / name) for name in ("seen", "batch", "own"))
    if not text:
        return broken(f"the job did not run: {batch.err}")
    return judge_secret(arena, text, last_line(text))


def odd_steps(arena: Arena, user: str) -> Outcome:
    """Kinds of steps that Slurm starts in its own way."""
    out = fresh(arena)
    options = ("--interactive", "--external-launcher", "--overlap --multi-prog", "--overlap --pty",
               "--overlap --export=NONE", "--overlap --label", "--overlap --mpi=none", "--overlap -Z",
               "--overlap --kill-on-bad-exit=0 --unbuffered", "--overlap --preserve-env")  # fmt: skip
    (out / "programs").write_text(f"0 cat {arena.canary}\n")
    lines = []
    for number, option in enumerate(options):
        what = f"{arena.inside(out)}/programs" if "multi-prog" in option else f"cat {arena.canary}"
        lines.append(f"timeout 10 srun -n1 {option} {what} >{arena.inside(out)}/{number} 2>&1 </dev/null")
    arena.sbatch("\n".join(lines), "-o", "/dev/null", user=user)
    text = "".join(read(out / str(number)) for number in range(len(options)))
    if "No such file" not in text:
        return broken(f"no step ran: {text}")
    return judge_secret(arena, text, last_line(text))


def another_jobs_step(arena: Arena, user: str) -> Outcome:
    """Root may add steps to anybody's job."""
    job = arena.cluster.jail(
        "sbatch", "--parsable", "-w", WORKER, "-o", "/dev/null", "--wrap", "sleep 60", user="eve"
    )
    number = job.ok().strip()
    try:
        arena.cluster.wait_until("it runs", lambda: arena.cluster.job(number)["JobState"] == "RUNNING")
        done = arena.srun("cat", arena.canary, options=(f"--jobid={number}", "--overlap"), user=user)
    finally:
        arena.cluster.jail("scancel", number)
    return judge_secret(arena, done.out, last_line(done.err))


def users_environment(arena: Arena, user: str) -> Outcome:
    """--get-user-env makes Slurm run a login shell of the user."""
    out = fresh(arena)
    profile = arena.cluster.root / "root" / ".bash_profile"
    look = f"cat {arena.canary} | tee -a /mnt/jail/root{arena.inside(out)}/seen >>{arena.inside(out)}/seen"
    with changed(profile, f"({look}) 2>/dev/null\n"):
        arena.sbatch("true", "--get-user-env", "-o", f"{arena.inside(out)}/0", user=user)
    return judge_secret(arena, read(out / "seen"), "no login shell saw the outside")
