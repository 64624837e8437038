# SPDX-License-Identifier: Apache-2.0
"""Attacks by what a job leaves: shared memory of System V and POSIX, processes, files of sbcast."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from tests.integration.escape.arena import Arena, Outcome, broken, escaped, held, read
from tests.integration.escape.ways.judge import END_ATTACKS, changed, fresh

FINDS = ("find-shared-memory", "find-semaphores", "find-messages", "find-posix-queue", "find-posix-memory")


# Seconds for what a job leaves to go; at level `filesystem` processes stay, and their test waits so long.
_GOES_S = 20


def _comes_true(condition: Callable[[], bool]) -> bool:
    """Whether it does within those seconds."""
    deadline = time.monotonic() + _GOES_S
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.2)
    return True


def _look(arena: Arena, text: str) -> Outcome:
    """The worst of several attacks' words."""
    words = [Outcome.read(line) for line in text.splitlines() if line.strip()]
    for kind in ("broken", "escaped"):
        for outcome in words:
            if outcome.kind == kind:
                return outcome
    return held(words[-1].what) if len(words) == len(FINDS) else broken(f"not all ran: {text}")


def finds(arena: Arena) -> str:
    return "\n".join(arena.attack(name) for name in FINDS)


def objects_after_the_job(arena: Arena, user: str) -> Outcome:
    """A later job of the same user looks for them."""
    left = arena.srun("sh", "-c", arena.attack("leave-ipc"), user=user)
    if "held" not in left.out:
        return broken(left.out + left.err)
    return _look(arena, arena.srun("sh", "-c", finds(arena), user=user).out)


def objects_of_another_job(arena: Arena, user: str) -> Outcome:
    """Two jobs of one user at the same time."""
    out = fresh(arena)
    here = arena.inside(out)
    script = f"{arena.attack('leave-ipc')} >{here}/left; until [ -e {here}/over ]; do sleep 0.1; done"
    job = arena.submit(script, "-o", "/dev/null", "-n1", user=user)
    try:
        arena.cluster.wait_until("they are left", lambda: "held" in read(out / "left"))
        return _look(arena, arena.srun("sh", "-c", finds(arena), user=user, options=("-n1",)).out)
    finally:
        (out / "over").touch()
        arena.wait(job)


def objects_in_the_same_job(arena: Arena, user: str) -> Outcome:
    """What must go on working, and shows that the looking finds."""
    script = f"srun --overlap sh -c '{arena.attack('leave-ipc')}' >/dev/null\nsrun --overlap sh /escape/finds"
    out = fresh(arena)
    (arena.folder / "finds").write_text(finds(arena))
    arena.sbatch(script, "-o", f"{arena.inside(out)}/0", user=user)
    return _look(arena, read(out / "0"))


def processes_after_the_job(arena: Arena, user: str) -> Outcome:
    """Out of the session, out of the tree of processes, deaf to signals."""
    number = str(100000 + secrets.randbelow(100000))
    lines = (
        f"setsid sleep {number} &",
        f"(setsid sh -c 'sleep {number} & sleep {number} & exit' &)",
        f"nohup setsid sh -c 'trap : TERM HUP INT; sleep {number}; sleep {number}' >/dev/null 2>&1 &",
        f"env -i setsid setsid sleep {number} &",
        "sleep 1",
    )
    arena.sbatch("\n".join(lines), "-o", "/dev/null", user=user)
    return _judge_left(arena, number)


def _judge_left(arena: Arena, number: str) -> Outcome:
    """Whether a `sleep number` goes on outside of any job."""
    # In brackets the first digit, for grep has what it looks for in its own command line.
    look = f"grep -lzx '[{number[0]}]{number[1:]}' /proc/[0-9]*/cmdline 2>/dev/null; true"

    def left() -> str:
        return arena.on_worker("sh", "-c", look).out.strip()

    # Slurm ends with SIGKILL what is left after SIGTERM, a while after the job is over to users.
    if _comes_true(lambda: not left()):
        return held("none is left")
    arena.on_worker("sh", "-c", f"grep -lz {number} /proc/[0-9]*/cmdline | cut -d/ -f3 | xargs -r kill -9")
    return escaped("a process of the job is left")


def served_after_the_job(arena: Arena, user: str) -> Outcome:
    """A process of no step waits for a file system that it serves itself: SIGKILL does not end it."""
    out = fresh(arena)
    said = f"{arena.inside(out)}/said"
    lines = (
        f"(setsid /escape/attack wait-for-itself >{said} 2>&1 </dev/null &)",
        f"until grep -q . {said}; do sleep 0.1; done",
    )
    arena.sbatch("\n".join(lines), "-o", "/dev/null", user=user)
    if "stays" not in read(out / "said"):
        return Outcome.read(read(out / "said"))
    if _comes_true(lambda: not arena.on_worker("sh", "-c", "grep -lsx attack /proc/[0-9]*/comm").out.strip()):
        return held("none is left")
    arena.on_worker("sh", "-c", END_ATTACKS)
    return escaped("a process of the job is left")


def processes_of_a_profile(arena: Arena, user: str) -> Outcome:
    """What a profile leaves that slurmd has read for --get-user-env; root inside is nobody's by uid."""
    number = str(100000 + secrets.randbelow(100000))
    out = fresh(arena)
    leave = f"(setsid sleep {number} >/dev/null 2>&1 </dev/null &)\nsleep 0.3\n: >{arena.inside(out)}/read\n"
    with changed(arena.cluster.root / "root" / ".bash_profile", leave):
        arena.sbatch("true", "--get-user-env", "-o", "/dev/null", user=user)
    if not (out / "read").exists():
        return broken("slurmd read no profile")
    return _judge_left(arena, number)


def brought_files_after_the_job(arena: Arena, user: str) -> Outcome:
    """What sbcast brought, and a folder of libraries beside it."""
    name = f"left-{secrets.token_hex(6)}"
    out = fresh(arena)
    script = f"sbcast /etc/passwd /run/bcast/{name} && ls /run/bcast/{name} >{arena.inside(out)}/0"
    done = arena.sbatch(script, "-o", "/dev/null", user=user)
    if name not in read(out / "0"):
        return broken(f"sbcast brought nothing: {done}")
    look = f"ls -d /run/bcast/{name}"
    if _comes_true(lambda: arena.on_worker("sh", "-c", look).status != 0):
        return held("it went with the job")
    return escaped(f"/run/bcast/{name} is left")


def brought_folders_after_the_job(arena: Arena, user: str) -> Outcome:
    """Folders of libraries, one in the other."""
    name = f"left-{secrets.token_hex(6)}"
    out = fresh(arena)
    paths = [f"/run/bcast/{name}" + "".join(f"_libs/{n}" for n in range(depth)) for depth in range(5)]
    script = "\n".join(f"sbcast --send-libs /bin/true {path}" for path in paths)
    done = arena.sbatch(f"{script}\nls {paths[-1]} >{arena.inside(out)}/0", "-o", "/dev/null", user=user)
    if name not in read(out / "0"):
        return broken(f"sbcast brought no folders: {done}")
    look = ("find", "/run/bcast", "-name", "*.so*", "-o", "-name", f"{name}*")
    if _comes_true(lambda: not arena.on_worker(*look).out):
        return held("they went with the job")
    return escaped(f"of /run/bcast/{name} is left")
