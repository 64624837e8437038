# SPDX-License-Identifier: Apache-2.0
"""Attacks by sbcast: slurmd writes the file outside, as the job's user, and asks no plugin."""

from __future__ import annotations

import re
import secrets
import shlex
import subprocess

from cellblock.cluster.engine.container_specs import container_name
from tests.integration.escape.arena import OPEN, WORKER, Arena, Outcome, broken, escaped, held, read
from tests.integration.escape.ways.judge import fresh, last_line

BROUGHT = "/run/bcast"
# The arena's own, and the jail.
_LEFT_OUT = ("/proc", "/mnt/jail", "/var/lib/extrausers", OPEN)
# Places that are not listed as writable all the same.
_ALWAYS = [
    "/",
    "/tmp",
    "/var/tmp",
    "/dev",
    "/dev/shm",
    "/dev/mqueue",
    "/run",
    "/run/munge",
    "/run/sshd",
    "/run/cellblock",
    "/etc",
    "/etc/munge",
    "/etc/cellblock",
    "/var/lib/munge",
    "/var/log",
    "/var/log/munge",
    "/var/log/slurm",
    "/var/spool",
    "/var/spool/slurmd",
    "/var/spool/slurmd/conf-cache",
    "/mnt/jail",
    "/mnt/jail/no-jail",
    "/sys/fs/cgroup",
    "/run/secrets/cellblock",
    "/root",
    "/usr/bin",
]


def as_user(uid: int, gid: int, groups: str = "") -> str:
    """The beginning of a command line that runs as these, and as none other."""
    more = f"--groups {groups}" if groups else "--clear-groups"
    return f"setpriv --reuid {uid} --regid {gid} {more}"


def writable_places(
    arena: Arena, uid: int, gid: int, *, hostname: str = WORKER, groups: str = ""
) -> list[str]:
    """What such a user may write where slurmd or sshd runs; not the jail, not /run/bcast."""
    prunes = " -o ".join(f"-path {path}" for path in (*_LEFT_OUT, BROUGHT))
    # Everybody's: devices without a disk behind them, and terminals' multiplexer.
    harmless = "|".join(("null", "zero", "full", "random", "urandom", "tty", "ptmx", "fuse", "pts/ptmx"))
    script = (
        f"{as_user(uid, gid, groups)} find / \\( {prunes} \\) -prune -o ! -type l ! -type s -writable -print"
        f" 2>/dev/null | grep -vxE '/dev/({harmless})'; true"
    )
    return arena.cluster.on(hostname, "sh", "-c", script).ok().splitlines()


def _uid(arena: Arena, user: str) -> tuple[int, int]:
    numbers = arena.cluster.jail("sh", "-c", f"id -u {user}; id -g {user}").ok().split()
    return int(numbers[0]), int(numbers[1])


def _found(arena: Arena, name: str) -> str | None:
    """A file of this name anywhere outside but in /run/bcast; it is removed."""
    left_out = f"-path /proc -o -path /mnt/jail/root -o -path {BROUGHT}"
    look = f"find / \\( {left_out} \\) -prune -o -name {name} -print"
    script = f"{look} 2>/dev/null | while read -r path; do echo $path; rm -rf $path; done"
    return " ".join(arena.on_worker("sh", "-c", script).out.split()) or None


def _bring(arena: Arena, places: list[str], begin: str = "", *, user: str = "root") -> Outcome:
    """sbcast into each place: as a file there, and over what is there."""
    name = f"brought-{secrets.token_hex(6)}"
    targets = [f"{place}/{name}" for place in places] + places
    loop = "\n".join(f"timeout 20 sbcast -f /etc/passwd {shlex.quote(target)} 2>&1" for target in targets)
    out = fresh(arena)
    (out / "script").write_text(f"cd /\n{loop}\n")
    run = f"{begin} salloc -Q -w {WORKER} sh {arena.inside(out)}/script"
    before = _sums(arena, places)
    done = arena.cluster.jail("timeout", "150", "sh", "-c", run, user=user)
    found = _found(arena, name)
    if found:
        return escaped(f"sbcast made {found}")
    if before != _sums(arena, places):
        return escaped("sbcast wrote over a file")
    return held(last_line(done.out + done.err))


def _sums(arena: Arena, places: list[str]) -> str:
    files = " ".join(shlex.quote(place) for place in places)
    return arena.on_worker("sh", "-c", f'for f in {files}; do [ -f "$f" ] && cksum "$f"; done; true').out


def into_every_place(arena: Arena, user: str) -> Outcome:
    """Wherever the user may write, and in each folder of a daemon."""
    uid, gid = _uid(arena, user)
    places = [] if user == "root" else writable_places(arena, uid, gid)
    return _bring(arena, [*places[:40], *_ALWAYS], user=user)


def beside_the_script(arena: Arena, user: str) -> Outcome:
    """Into the job's own directory in the spool, which Slurm makes the user's."""
    out, name = fresh(arena), f"brought-{secrets.token_hex(6)}"
    folder = '/var/spool/slurmd/job$(printf %05d "$SLURM_JOB_ID")'
    bring = f"for f in {name} slurm_script; do sbcast -f /etc/passwd {folder}/$f; done"
    script = f"ls {folder}/slurm_script; {bring}; cksum </etc/passwd; cksum <{folder}/slurm_script"
    arena.sbatch(script, "-o", f"{arena.inside(out)}/said", user=user)
    said = read(out / "said")
    found = _found(arena, name)
    if found:
        return escaped(f"sbcast made {found}")
    if "slurm_script" not in said:
        return broken(f"the job's directory was not there: {said}")
    sums = [line for line in said.splitlines() if re.fullmatch(r"\d+ \d+", line)]
    if len(set(sums)) != 2:
        return escaped(f"sbcast wrote over the script: {said}")
    return held(last_line(said))


def onto_devices(arena: Arena, user: str) -> Outcome:
    """slurmd gives what it has written to the user, and sets its mode: of devices that all may write, too."""
    look = "for f in /dev/*; do [ -h $f ] || [ ! -c $f ] || stat -c '%n %u:%g %a' $f; done"
    before = arena.on_worker("sh", "-c", look).ok()
    out = fresh(arena)
    names = " ".join(line.split()[0] for line in before.splitlines())
    # slurmd's own input is a device, too.
    targets = f"{names} /dev/stdin /proc/self/fd/0"
    script = f"for f in {targets}; do timeout 20 sbcast -f /etc/passwd $f 2>&1; done\n"
    (out / "script").write_text(script)
    bring = ("salloc", "-Q", "-w", WORKER, "sh", f"{arena.inside(out)}/script")
    done = arena.cluster.jail(*bring, user=user)
    after = arena.on_worker("sh", "-c", look).ok()
    if before == after:
        return held(last_line(done.out)) if "sbcast" in done.out else broken(f"nothing was brought: {done}")
    arena.on_worker("sh", "-c", f"chown root:root {names}; chmod 666 {names}")
    changed = sorted(set(after.splitlines()) - set(before.splitlines()))
    return escaped(f"devices of the node have another owner or mode: {changed}")


def without_plugins(arena: Arena) -> str:
    """A configuration for Slurm's commands in which nothing checks who submits; its path in the jail."""
    folder = arena.folder / "conf"
    if not folder.exists():
        folder.mkdir()
        text = arena.cluster.jail("cat", "/etc/slurm/slurm.conf").ok()
        (folder / "slurm.conf").write_text(text)
        folder.chmod(0o755)
    return "/escape/conf/slurm.conf"


def _as_system(arena: Arena, uid: int, gid: int, groups: str = "") -> Outcome:
    """Root inside becomes somebody whom the node knows, and submits."""
    begin = f"{as_user(uid, gid, groups)} env SLURM_CONF={without_plugins(arena)}"
    places = writable_places(arena, uid, gid, groups=groups)
    terminal = f"/dev/pts/{arena.variables['TERMINAL']}"
    return _bring(arena, [*places[:40], *_ALWAYS, terminal], begin)


def by_munge(arena: Arena, user: str) -> Outcome:
    number = int(arena.variables["MUNGE_UID"])
    return _as_system(arena, number, number)


def by_group_root(arena: Arena, user: str) -> Outcome:
    return _as_system(arena, _uid(arena, "eve")[0], 0)


def by_group_tty(arena: Arena, user: str) -> Outcome:
    return _as_system(arena, _uid(arena, "eve")[0], 5)


def by_group_shadow(arena: Arena, user: str) -> Outcome:
    return _as_system(arena, _uid(arena, "eve")[0], 42)


def by_all_groups(arena: Arena, user: str) -> Outcome:
    """The jail's own list of groups makes eve a member of the node's."""
    uid, gid = _uid(arena, "eve")
    arena.cluster.jail("sh", "-c", "for g in root tty shadow disk; do usermod -aG $g eve; done").ok()
    try:
        return _as_system(arena, uid, gid, "0,5,6,42")
    finally:
        arena.cluster.jail("sh", "-c", "for g in root tty shadow disk; do gpasswd -d eve $g; done")


def through_a_link(arena: Arena, user: str) -> Outcome:
    """Somebody's link waits where another brings a file."""
    bob, link = _uid(arena, "bob"), f"{BROUGHT}/{arena.mark}-link"
    target = f"{OPEN}/of-bob" if user == "bob" else f"{OPEN}/of-root"
    owner = bob if user == "bob" else (0, 0)
    eve = _uid(arena, "eve")
    lay = f"echo kept >{target}; chown {owner[0]} {target}; {as_user(*eve)} ln -sf {target} {link}"
    arena.on_worker("sh", "-c", lay).ok()
    try:
        bring = ("salloc", "-Q", "-w", WORKER, "sbcast", "-f", "/etc/passwd", link)
        done = arena.cluster.jail(*bring, user=user)
        text = arena.on_worker("cat", target).ok()
    finally:
        arena.on_worker("rm", "-f", link, target)
    return held(last_line(done.err)) if text == "kept\n" else escaped("a link of eve's led to another's file")


def over_a_file(arena: Arena, user: str) -> Outcome:
    """Somebody's file, which all may write, waits there: who brings another stays with eve's."""
    out, file = fresh(arena), f"{BROUGHT}/{arena.mark}-file"
    here = arena.inside(out)
    (out / "program").write_text("#!/bin/sh\necho eve's\n")
    (out / "program").chmod(0o777)
    script = (
        f"sbcast -f {here}/program {file} >{here}/said 2>&1; touch {here}/there\n"
        f"until [ -e {here}/over ]; do sleep 0.1; done"
    )
    job = arena.submit(script, "-n1", "-o", "/dev/null", user="eve")
    arena.cluster.wait_until("eve's file is there", lambda: (out / "there").exists())
    try:
        laid = arena.on_worker("stat", "-c", "%U %a", file)
        if laid.status:
            return broken(f"eve brought no file: {read(out / 'said')}")
        allocate = ("salloc", "-Q", "-n1", "-w", WORKER, "sbcast", "-f", "/etc/passwd", file)
        done = arena.cluster.jail(*allocate, user=user)
        shown = arena.on_worker("sh", "-c", f"stat -c %u {file}; cat {file}").out
    finally:
        (out / "over").touch()
        arena.wait(job)
    owner, _, text = shown.partition("\n")
    if int(owner or -1) == _uid(arena, "eve")[0] and "eve's" not in text:
        return escaped(f"what {user} brought is in a file of eve's, who can change it")
    return held(f"status {done.status}: {last_line(done.err)}; the file is uid {owner}'s")


def by_option(arena: Arena, user: str) -> Outcome:
    """srun --bcast, with the libraries of the program."""
    name = f"brought-{secrets.token_hex(6)}"
    for place in ("/var/spool/slurmd", "/tmp", OPEN.replace("open", "shut"), "/etc/munge", "/run/munge"):
        arena.srun("true", options=(f"--bcast={place}/{name}", "--send-libs"), user=user)
    found = _found(arena, name) or _found(arena, f"{name}_libs")
    return escaped(f"srun --bcast made {found}") if found else held("nothing outside but in /run/bcast")


def copied_program(arena: Arena) -> str:
    """The container's name, for podman cp."""
    return container_name(arena.cluster.request.name, WORKER)


def put_on_worker(arena: Arena, source: str, target: str) -> None:
    subprocess.run(["podman", "cp", source, f"{copied_program(arena)}:{target}"], check=True)


def kept_by_a_task(arena: Arena, user: str) -> Outcome:
    """Whether a task has a descriptor that is not its own."""
    done = arena.srun("sh", "-c", arena.attack("kept-descriptors"), user=user)
    return Outcome.read(done.out or done.err)
