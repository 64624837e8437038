# SPDX-License-Identifier: Apache-2.0
"""The window, seen from outside while a step waits in it; and a site's plugins that open or fork there."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.escape.arena import LEVELS, OPEN, WORKER, Arena, Level
from tests.integration.escape.configuration import publish
from tests.integration.escape.ways import broadcast, descriptors, privileges, remains, submitters
from tests.integration.escape.ways.judge import fresh

pytestmark = pytest.mark.integration

_SOURCE = Path(__file__).with_name("planted.c")
_PROGRAM = "/usr/local/bin/escape-where"

# Of the thread of slurmstepd that waits in open(2) of a FIFO: the directories it holds, its root's /proc.
_LOOK = r"""
for p in /proc/[0-9]*; do
    [ "$(cat $p/comm 2>/dev/null)" = slurmstepd ] || continue
    for t in $p/task/*; do
        grep -qs wait_for_partner $t/stack || grep -qs wait_for_partner $t/wchan || continue
        echo waits $t
        for fd in $t/fd/*; do
            [ ! -d $fd/ ] || echo "directory ${fd##*/} $(readlink $fd)"
        done
        ls -A $t/root/proc/ 2>/dev/null | sed 's/^/proc /'
        [ ! -e $t/root@OPEN@ ] || echo "outside $t/root"
    done
done
""".replace("@OPEN@", OPEN)


@contextmanager
def waiting_step(arena: Arena, user: str, option: str) -> Iterator[str]:
    """A batch job whose slurmstepd waits for a FIFO of the user's; gives what the look sees."""
    out = fresh(arena)
    os.mkfifo(out / "fifo")
    (out / "fifo").chmod(0o666)
    job = arena.submit("true", option, f"{arena.inside(out)}/fifo", *_elsewhere(option), user=user)
    number = job.ok().strip()
    seen: list[str] = []

    def waits() -> bool:
        seen[:] = [arena.on_worker("sh", "-c", _LOOK).out]
        return "waits" in seen[0]

    try:
        arena.cluster.wait_until("slurmstepd waits for the FIFO", waits)
        yield seen[0]
    finally:
        arena.cluster.jail("scancel", number)
        arena.wait(job)


def _elsewhere(option: str) -> tuple[str, ...]:
    return ("-o", "/dev/null") if option != "-o" else ()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("user", ["eve", "root"])
@pytest.mark.parametrize("option", ["-i", "-o"])
def test_slurmstepd_in_the_window_has_no_directory_and_no_proc(
    option: str, user: str, level: Level, arena: Arena
) -> None:
    """And the job can be cancelled: waiting_step waits for its end, with nobody at the FIFO's other end."""
    arena.switch(level)
    with waiting_step(arena, user, option) as seen:
        lines = [line for line in seen.splitlines() if not line.startswith("waits")]
        assert not lines


@contextmanager
def plugin(arena: Arena, kind: str, tmp_path: Path, *, with_jail: bool = True) -> Iterator[None]:
    """The worker's slurmstepd has one more plugin, after the jail's or in its place."""
    major, minor = (int(part) for part in arena.cluster.status.release.split("."))
    library = tmp_path / "planted.so"
    version = f"-DPLUGIN_VERSION={major << 16 | minor << 8}"
    flags = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    program = f'-DPROGRAM="{_PROGRAM}"'
    subprocess.run([*flags, version, program, f"-D{kind}", "-o", str(library), str(_SOURCE)], check=True)
    broadcast.put_on_worker(arena, str(library), "/usr/local/lib/planted.so")
    arena.on_worker("chown", "0:0", "/usr/local/lib/planted.so").ok()
    file = arena.cluster.root.parent.parent / "config" / "slurm" / "plugstack.conf"
    before = file.read_text()
    line = "optional /usr/local/lib/planted.so\n"
    try:
        publish(arena, file, before + line if with_jail else line)
        yield
    finally:
        publish(arena, file, before)


def test_a_descriptor_that_is_planted_is_found_and_leads_nowhere(arena: Arena, tmp_path: Path) -> None:
    """The look from outside sees it; the walk by names, of which the window has none, does not reach it."""
    arena.switch("capabilities")
    with plugin(arena, "PLANT", tmp_path):
        with waiting_step(arena, "eve", "-i") as seen:
            assert re.search(r"^directory \d+ /", seen, re.MULTILINE), seen
        for user in ("eve", "root"):
            for way in (descriptors.batch_input, descriptors.walk_input, descriptors.walk_folder):
                outcome = way(arena, user)
                assert outcome.kind == "held", outcome.what
            # Nor does it reach a task.
            outcome = broadcast.kept_by_a_task(arena, user)
            assert outcome.kind == "held", outcome.what


def test_the_walk_finds_a_planted_descriptor_where_there_is_no_jail(arena: Arena, tmp_path: Path) -> None:
    """What proves that the walk can fail."""
    with plugin(arena, "PLANT", tmp_path, with_jail=False):
        for option in ("input", "output", "error"):
            outcome = descriptors.plain_step(arena, option, "/proc/self/fd/%t")
            assert outcome.kind == "escaped", outcome.what


@pytest.mark.parametrize("level", ["filesystem", "capabilities", "pid"])
def test_what_another_thread_forks_runs_outside(level: Level, arena: Arena, tmp_path: Path) -> None:
    """UnkillableStepProgram is started so: the jail's file of that name must not run as root."""
    arena.switch(level)
    inside = arena.cluster.root / _PROGRAM.lstrip("/")
    out = fresh(arena)
    stolen = f"{arena.inside(out)}/stolen"
    inside.write_text(f"#!/bin/sh\nid -u >{stolen}; id -u >/mnt/jail/root{stolen}\n")
    inside.chmod(0o755)
    text = "#!/bin/sh\\necho outside >>/run/escape-where\\n"
    outside = f"printf '{text}' >{_PROGRAM}; chmod 755 {_PROGRAM}; rm -f /run/escape-where"
    arena.on_worker("sh", "-c", outside).ok()
    try:
        with plugin(arena, "FORK", tmp_path):
            arena.srun("true", user="eve").ok()
            told = arena.on_worker("cat", "/run/escape-where").out.split()
    finally:
        inside.unlink()
    assert not (out / "stolen").exists()
    assert len(told) >= 2, told


def test_files_of_users_give_rights_inside(arena: Arena) -> None:
    """su, sudo and ping work; outside such files give nothing (cases set-user-id-by-..., ...)."""
    arena.switch("capabilities")
    for program in (privileges.set_user_id(arena), privileges.with_capabilities(arena)):
        done = arena.srun(arena.inside(program), "rights", user="eve")
        assert done.out.startswith("escaped: "), done


def test_a_ticket_of_the_outside_lets_a_job_out(arena: Arena) -> None:
    """What the cases ticket-by-... try to forge."""
    outcome = privileges.ticket_of_the_outside(arena)
    assert outcome.kind == "escaped", outcome.what


def test_the_looking_for_objects_finds_them_in_the_same_job(arena: Arena) -> None:
    arena.switch("capabilities")
    assert remains.objects_in_the_same_job(arena, "eve").kind == "escaped"


def test_an_ordinary_user_submits_without_plugins(arena: Arena) -> None:
    """What the cases submit-as-... try as others."""
    assert submitters.an_ordinary_user(arena).kind == "escaped"


@pytest.mark.parametrize("hostname", [WORKER, "login"])
@pytest.mark.parametrize(("uid", "gid"), [(4242, 4242), (4242, 0), (4242, 5), (4242, 42)])
def test_a_user_can_write_nothing_outside(uid: int, gid: int, hostname: str, arena: Arena) -> None:
    """But for /run/bcast, and what is everybody's in /dev. Where slurmd and sshd run, whatever the mounts."""
    found = broadcast.writable_places(arena, uid, gid, hostname=hostname)
    assert [path for path in found if not path.startswith("/dev/")] == []
