# SPDX-License-Identifier: Apache-2.0
"""Attacks by files, folders and terminals that slurmstepd opens for a job."""

from __future__ import annotations

from tests.integration.escape.arena import WORKER, Arena, Outcome, broken, escaped, held, read
from tests.integration.escape.ways.judge import fresh, judge_mark, judge_secret, last_line


def directory_as_input(arena: Arena, user: str) -> Outcome:
    """A descriptor of a directory of the window, from which `..` might lead out."""
    out = fresh(arena)
    files = [out / str(number) for number in range(3)]
    attack = arena.attack("kept-descriptors")
    arena.wait(
        *(
            arena.submit(f"{attack} >{arena.inside(file)}", "-i", folder, "-o", "/dev/null", user=user)
            for file, folder in zip(files, ("/", "/tmp", "/escape"), strict=True)
        )
    )
    for file in files:
        outcome = Outcome.read(read(file) or "held: the task was refused")
        if outcome.kind != "held":
            return outcome
    return held("no task had a directory for input that led out")


def output_by_proc(arena: Arena, user: str) -> Outcome:
    """Output files are opened by slurmstepd, for root as root."""
    paths = ("/proc/1/root/root", "/proc/1/root/tmp", "/proc/1/cwd", "/proc/self/root/proc/1/root/tmp")
    arena.wait(*(arena.submit("echo out", "-o", f"{path}/{arena.mark}", user=user) for path in paths))
    return judge_mark(arena, "no file outside", "/root", "/tmp", "", "/var/spool/slurmd")


def output_below_proc(arena: Arena, user: str) -> Outcome:
    """Slurm makes the folders of an output file. In the volume's /proc, slurmstepd would believe them."""
    arena.sbatch("true", "-o", f"/proc/self/{arena.mark}/0", user=user)
    arena.srun("true", options=(f"--output=/proc/{arena.mark}/%t",), user=user)
    found = sorted(path.name for path in (arena.cluster.root / "proc").iterdir())
    return (
        escaped(f"{', '.join(found)} in the volume's /proc") if found else held("the volume's /proc is empty")
    )


def input_by_proc(arena: Arena, user: str) -> Outcome:
    """Input files are, too."""
    out = fresh(arena)
    arena.sbatch("cat", "-i", f"/proc/1/root{arena.canary}", "-o", f"{arena.inside(out)}/0", user=user)
    return judge_secret(arena, read(out / "0"), "the canary was not read")


def input_by_descriptor(arena: Arena, user: str) -> Outcome:
    """What slurmstepd itself has open, by number."""
    out = fresh(arena)
    here = arena.inside(out)
    # A file that the jail does not have under the name it shows: the node's.
    script = 'f=$(readlink /proc/self/fd/0); case $f in /*) [ -e "$f" ] || echo "file $f";; esac'
    lines = [
        f"sbatch -w {WORKER} -i /proc/self/fd/{number} -o {here}/{number} --wrap '{script}'"
        for number in range(3, 24)
    ]
    arena.cluster.jail("bash", "-c", "\n".join(lines), user=user)
    arena.cluster.wait_until("they are over", lambda: not arena.cluster.jail("squeue", "-h").out)
    seen = "".join(read(path) for path in out.iterdir())
    found = [line for line in seen.splitlines() if line.startswith("file ")]
    return escaped(f"slurmstepd's {found[0]} was opened") if found else held("no file of slurmstepd's")


def folder_by_proc(arena: Arena, user: str) -> Outcome:
    """slurmstepd changes to the job's folder before the task enters the jail, and after."""
    done = arena.srun("sh", "-c", f"cat ../..{arena.canary} .{arena.canary}; pwd",
                      options=("--chdir=/proc/1/root",), user=user)  # fmt: skip
    return judge_secret(arena, done.out, last_line(done.err))


def _output_into(arena: Arena, folder: str, user: str) -> Outcome:
    arena.sbatch("echo out", "-o", f"{folder}/{arena.mark}", user=user)
    return judge_mark(arena, f"nothing in {folder}", folder)


def output_in_conf_cache(arena: Arena, user: str) -> Outcome:
    """plugstack.conf is there, which names what slurmstepd loads."""
    return _output_into(arena, "/var/spool/slurmd/conf-cache", user)


def output_in_spool(arena: Arena, user: str) -> Outcome:
    """slurmd reads files of its spool, and runs the scripts of jobs from it."""
    return _output_into(arena, "/var/spool/slurmd", user)


def output_into_own_file_in_spool(arena: Arena, user: str) -> Outcome:
    """A job's script is its user's for a moment: another step's output has it open, and fills the spool."""
    out, mark = fresh(arena), f"written-{arena.mark}"
    file, uid = f"/var/spool/slurmd/{arena.mark}", arena.cluster.jail("id", "-u", user).ok().strip()
    (out / "link-0").symlink_to(file)
    arena.on_worker("sh", "-c", f": >{file}; chown {uid} {file}").ok()
    try:
        arena.sbatch(f"echo {mark}", "-o", file, "--open-mode=append", user=user)
        done = arena.srun("echo", mark, options=("-n1", f"--output={arena.inside(out)}/link-%t"), user=user)
        text = arena.on_worker("cat", file).ok()
    finally:
        arena.on_worker("rm", "-f", file)
    if mark in text:
        return escaped("a job wrote into its user's file in the spool")
    return held(last_line(text)) if done.status else broken(f"the step ran: {done}")


def pushed_input(arena: Arena, user: str) -> Outcome:
    """A terminal's input queue outlives the program that pushed to it."""
    arena.cluster.jail(
        "srun", "-w", WORKER, "--pty", "sh", "-c", arena.attack("push-input"), user=user, tty=True
    )
    outcome = judge_mark(arena, "nobody outside read it", "/root")
    return (
        outcome if outcome.kind == "escaped" else judge_mark(arena, outcome.what, "/root", hostname="login")
    )
