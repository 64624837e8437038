# SPDX-License-Identifier: Apache-2.0
"""Attacks by every descriptor number and process name in /proc, wherever Slurm opens a file for a job.

What counts is what the watch outside sees (Arena.watched), not what a job prints: a step of which one file
cannot be opened runs nothing, while slurmstepd goes on with the files of its other tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.integration.escape.arena import OPEN, WORKER, Arena, Outcome, broken, escaped, held
from tests.integration.escape.ways.judge import fresh

# One task a descriptor: Slurm puts the task's number in place of %t.
NUMBERS = 256
_DESCRIPTORS = ("/proc/self/fd/%t", "/dev/fd/%t", "/proc/thread-self/fd/%t")
# Of a program, a folder, a prolog: one step a number.
_FEW = 12
_AT_ONCE = 8


def _doors(arena: Arena) -> list[str]:
    """Names of the outside's root in /proc, by process 1, slurmd, munged, and who opens."""
    slurmd, munged = arena.variables["SLURMD"], arena.variables["MUNGED"]
    names = ["/proc/1/root", f"/proc/{slurmd}/root", f"/proc/{munged}/root", f"/proc/{slurmd}/cwd"]
    names += ["/proc/self/root", "/proc/thread-self/root", "/proc/self/cwd/../../../../../.."]
    names += [f"/proc/{slurmd}/task/{slurmd}/root", f"/proc/{slurmd}/fd/%t", "/proc/1/fd/%t"]
    return names


def _files(option: str, road: str) -> Iterator[str]:
    """What is asked for at the end of a road. With a task's number in it slurmstepd opens it, else srun."""
    if option != "input":
        yield f"{road}{OPEN}/escape-mark-%t"
    elif "%t" in road:
        yield f"{road}{OPEN}/0"
        yield f"{road}/etc/munge/munge.key"
    else:
        yield f"{road}{OPEN}/%t"


def steps(option: str, roads: list[str]) -> str:
    """A script that walks them all: lines of srun, whose success nobody asks for."""
    begin = "timeout 60 srun --overlap -O --open-mode=append"
    return "\n".join(
        f"{begin} -n{NUMBERS if '%t' in road else 1} --{option}={file} true"
        for road in roads
        for file in _files(option, road)
    )


def _judge(seen: list[str], otherwise: str) -> Outcome:
    return escaped(f"outside was {seen[0]}") if seen else held(otherwise)


def _walk(arena: Arena, user: str, script: str) -> Outcome:
    """Run `script` in a job, and look outside meanwhile."""
    out = fresh(arena)
    # The last line proves that the steps did run, and that one goes on after a file that it cannot open.
    (out / "0").mkdir()
    proof = f"srun --overlap -O -n{NUMBERS} --output={arena.inside(out)}/%t true"
    with arena.watched() as seen:
        arena.sbatch(f"exec >{arena.inside(out)}/said 2>&1\n{script}\n{proof}", "-o", "/dev/null", user=user)
    last = out / str(NUMBERS - 1)
    if not last.exists():
        return broken(f"the walk came to no end: {_tail(out / 'said')}")
    arena.on_worker("sh", "-c", f"rm -f {OPEN}/escape-mark*")
    return _judge(seen, "nothing outside was opened or made")


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-1500:] if path.exists() else "it said nothing"


def walk_input(arena: Arena, user: str) -> Outcome:
    return _walk(arena, user, steps("input", [*_DESCRIPTORS, *_doors(arena)]))


def walk_output(arena: Arena, user: str) -> Outcome:
    return _walk(arena, user, steps("output", [*_DESCRIPTORS, *_doors(arena)]))


def walk_error(arena: Arena, user: str) -> Outcome:
    return _walk(arena, user, steps("error", [*_DESCRIPTORS, *_doors(arena)]))


def walk_program(arena: Arena, user: str) -> Outcome:
    """Each task of a step has a program of its own."""
    out = fresh(arena)
    lines = []
    for name, road in enumerate([*_DESCRIPTORS, *_doors(arena)]):
        count = 64 if "%t" in road else 1
        text = "".join(f"{n} {road.replace('%t', str(n))}{OPEN}/program\n" for n in range(count))
        (out / f"programs-{name}").write_text(text)
        file = f"{arena.inside(out)}/programs-{name}"
        lines.append(f"timeout 60 srun --overlap -O -K0 -n{count} --multi-prog {file}")
    return _walk(arena, user, "\n".join(lines))


def _numbered(arena: Arena) -> Iterator[str]:
    for road in [*_DESCRIPTORS, *_doors(arena)]:
        for number in range(_FEW if road == _DESCRIPTORS[0] else 3 if "%t" in road else 1):
            yield road.replace("%t", str(number))


def walk_folder(arena: Arena, user: str) -> Outcome:
    """The folder is changed to in slurmstepd and in the task; what it is, is seen by what is opened there."""
    lines = [f"timeout 60 srun --overlap --chdir={road}{OPEN} cat 0" for road in _numbered(arena)]
    return _walk(arena, user, "\n".join(lines))


def walk_prologs(arena: Arena, user: str) -> Outcome:
    programs = (f"{road}{OPEN}/program" for road in _numbered(arena))
    lines = [f"timeout 60 srun --overlap --task-prolog={name} --task-epilog={name} true" for name in programs]
    return _walk(arena, user, _side_by_side(lines))


def _side_by_side(lines: list[str]) -> str:
    """So many at a time: srun waits a second when its task's prolog has failed."""
    groups = (lines[first : first + _AT_ONCE] for first in range(0, len(lines), _AT_ONCE))
    return "\n".join(" &\n".join([*group, "wait"]) for group in groups)


def _batches(arena: Arena, user: str, *options: str, number: str) -> Outcome:
    """Arrays of batch jobs, an element for each number; `options` have %a where it belongs."""
    with arena.watched() as seen:
        arena.wait(arena.submit("cat; cat 0", f"--array={number}", "--open-mode=append", *options, user=user))
    arena.on_worker("sh", "-c", f"rm -f {OPEN}/escape-mark*")
    return _judge(seen, "nothing outside was opened or made")


def batch_input(arena: Arena, user: str) -> Outcome:
    """slurmstepd of a batch script has other descriptors than that of a step."""
    return _batches(arena, user, f"--input=/proc/self/fd/%a{OPEN}/0", "-o", "/dev/null", number="3-42")


def batch_output(arena: Arena, user: str) -> Outcome:
    return _batches(arena, user, f"--output=/proc/self/fd/%a{OPEN}/escape-mark", number="3-42")


def batch_doors(arena: Arena, user: str) -> Outcome:
    """The names that need no number, in each place where sbatch takes one."""
    out = arena.inside(fresh(arena))
    roads = [*_doors(arena)[:8], *(road.replace("%t", "27") for road in _DESCRIPTORS)]
    with arena.watched() as seen:
        jobs = []
        for road in roads:
            for options in (
                ("-i", f"{road}{OPEN}/0"),
                ("-i", f"{road}{arena.variables['KEY']}"),
                ("-e", f"{road}{OPEN}/escape-mark"),
                ("-D", f"{road}{OPEN}"),
            ):
                jobs.append(arena.submit("cat; cat 0", "-o", f"{out}/%j", *options, user=user))
        arena.wait(*jobs)
    arena.on_worker("sh", "-c", f"rm -f {OPEN}/escape-mark*")
    return _judge(seen, "nothing outside was opened or made")


def plain_step(arena: Arena, option: str, road: str) -> Outcome:
    """The same walk by one road, from the node itself: in a step without a jail it finds."""
    with arena.watched() as seen:
        # Without a jail PMIx finds no /tmp that it can write.
        script = f"export SLURM_MPI_TYPE=none; {steps(option, [road])}"
        arena.on_worker("timeout", "60", "salloc", "-Q", "-w", WORKER, "sh", "-c", script)
    arena.on_worker("sh", "-c", f"rm -f {OPEN}/escape-mark*")
    return _judge(seen, "nothing outside was opened or made")
