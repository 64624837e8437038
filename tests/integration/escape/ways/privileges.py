# SPDX-License-Identifier: Apache-2.0
"""Attacks by rights that a file of the volume gives, which must count only inside; and by forged tickets."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.integration.escape.arena import (
    DAEMON_UID,
    OPEN,
    Arena,
    Outcome,
    broken,
    escaped,
    find_process,
    held,
    read,
)
from tests.integration.escape.ways.judge import fresh, judge_secret, last_line
from tests.integration.local_cluster import Done

_VOLUME = "/mnt/jail/root"
# Of linux/capability.h: VFS_CAP_REVISION_2 with the effective bit; CAP_SETUID and CAP_DAC_OVERRIDE.
_SETUID_AND_DAC = bytes.fromhex("01000002" + "82000000" * 2 + "00000000" * 2)


def set_user_id(arena: Arena) -> Path:
    """The program of the attacks, as root inside would leave it: for everybody, as root."""
    path = arena.folder / "set-user-id"
    if not path.exists():
        shutil.copy(arena.folder / "attack", path)
        path.chmod(0o4755)
    return path


def with_capabilities(arena: Arena) -> Path:
    path = arena.folder / "with-capabilities"
    if not path.exists():
        shutil.copy(arena.folder / "attack", path)
        path.chmod(0o755)
        os.setxattr(path, "security.capability", _SETUID_AND_DAC)
    return path


def _number(arena: Arena, namespace: str) -> str:
    """The daemon's process; attacks before this one may have ended slurmd, and it is another one then."""
    known = str(arena.variables[namespace])
    if arena.on_worker("test", "-e", f"/proc/{known}").status == 0:
        return known
    return find_process(arena.cluster, namespace.lower())


def _outside(arena: Arena, program: Path, namespace: str) -> Outcome:
    """What it has when somebody outside runs it, where the daemon `namespace` sees the volume."""
    name = f"{_VOLUME}{arena.inside(program)}"
    somebody = f"setpriv --reuid {DAEMON_UID} --regid {DAEMON_UID} --clear-groups"
    done = arena.on_worker("sh", "-c", f"nsenter -t {_number(arena, namespace)} -m {somebody} {name} rights")
    return Outcome.read(done.out or done.err)


def set_user_id_by_slurmd(arena: Arena, user: str) -> Outcome:
    return _outside(arena, set_user_id(arena), "SLURMD")


def set_user_id_by_sshd(arena: Arena, user: str) -> Outcome:
    return _outside(arena, set_user_id(arena), "SSHD")


def capabilities_by_slurmd(arena: Arena, user: str) -> Outcome:
    return _outside(arena, with_capabilities(arena), "SLURMD")


def capabilities_by_sshd(arena: Arena, user: str) -> Outcome:
    return _outside(arena, with_capabilities(arena), "SSHD")


def _device(arena: Arena, namespace: str) -> Outcome:
    """A node on the volume, whoever made it: /dev/zero, which all may read."""
    path = arena.folder / "node"
    if not path.exists():
        os.mknod(path, 0o20666, os.makedev(1, 5))
        path.chmod(0o666)
    look = f"nsenter -t {_number(arena, namespace)} -m head -c 1 {_VOLUME}{arena.inside(path)}"
    done = arena.on_worker("sh", "-c", f"{look} | wc -c")
    return _judge_device(done)


def _judge_device(done: Done) -> Outcome:
    return escaped("the device was opened") if done.out.strip() == "1" else held(last_line(done.err))


def device_by_slurmd(arena: Arena, user: str) -> Outcome:
    return _device(arena, "SLURMD")


def device_by_sshd(arena: Arena, user: str) -> Outcome:
    return _device(arena, "SSHD")


def device_inside(arena: Arena, user: str) -> Outcome:
    _device(arena, "SLURMD")
    done = arena.srun("sh", "-c", "head -c 1 /escape/node | wc -c", user=user)
    return _judge_device(done)


def devices_changed(arena: Arena, user: str) -> Outcome:
    """Devices in a job may be the node's own: root inside changes their owner and mode for all jobs there."""
    look = "for f in /dev/*; do [ -h $f ] || [ ! -c $f ] || stat -c '%n %u:%g %a' $f; done"
    before = arena.on_worker("sh", "-c", look).ok()
    change = "for f in /dev/*; do [ -h $f ] || [ ! -c $f ] || chown 4242 $f; chmod 640 $f; done 2>&1"
    done = arena.srun("sh", "-c", change, user=user)
    after = arena.on_worker("sh", "-c", look).ok()
    if before == after:
        return held(last_line(done.out))
    for line in before.splitlines():
        name, owner, mode = line.split()
        arena.on_worker("sh", "-c", f"chown {owner} {name}; chmod {mode} {name}").ok()
    changed = sorted(set(after.splitlines()) - set(before.splitlines()))
    return escaped(f"devices of the node have another owner or mode: {changed}")


def _forged(arena: Arena, user: str, forge: str) -> Outcome:
    """A job that says --no-jail, held until `forge` (shell) has made its ticket outside; $1 is its name."""
    out = fresh(arena)
    here = arena.inside(out)
    uid = arena.cluster.jail("id", "-u", user).ok().strip()
    # What Slurm's commands believe inside: tickets of the user's own, in a folder of root's.
    folder = arena.folder / "conf-tickets"
    (folder / "tickets" / uid).mkdir(parents=True, exist_ok=True)
    os.chown(folder / "tickets" / uid, int(uid), int(uid))
    (folder / "tickets" / uid).chmod(0o700)
    text = arena.cluster.jail("cat", "/etc/slurm/slurm.conf").ok()
    (folder / "slurm.conf").write_text(text)
    plugins = arena.cluster.jail("cat", "/etc/slurm/plugstack.conf").ok()
    (folder / "plugstack.conf").write_text(plugins.replace(TICKETS, "/escape/conf-tickets/tickets"))
    script = (
        f"export SLURM_CONF=/escape/conf-tickets/slurm.conf\n"
        f"job=$(sbatch --parsable --hold --no-jail -o {here}/said --wrap 'cat {OPEN}/0') || exit\n"
        f"set -- $(ls -t /escape/conf-tickets/tickets/{uid} | head -1)\n"
        f"{forge.format(uid=uid, here=here)}\n"
        "scontrol release $job; echo $job"
    )
    done = arena.cluster.jail("bash", "-c", script, user=user)
    if done.status or not done.out.split():
        return broken(f"no job was submitted: {done.err}")
    job = done.out.split()[-1]
    arena.cluster.wait_until("it is over", lambda: job not in arena.cluster.jail("squeue", "-h").out.split())
    said = read(out / "said")
    if arena.secret not in said and "ticket" not in said:
        return broken(f"it did not end by its ticket: {said}{done.err}")
    arena.on_worker("sh", "-c", f"rm -f {TICKETS}/{uid}/*")
    return judge_secret(arena, said, last_line(said))


# A site with --no-jail; see arena.py.
TICKETS = "/mnt/jail/no-jail"


def ticket_by_sbcast(arena: Arena, user: str) -> Outcome:
    return _forged(arena, user, f"salloc -Q sbcast -f /etc/passwd {TICKETS}/{{uid}}/$1")


def ticket_by_bcast(arena: Arena, user: str) -> Outcome:
    return _forged(arena, user, f"srun --bcast={TICKETS}/{{uid}}/$1 true")


def ticket_by_output(arena: Arena, user: str) -> Outcome:
    lines = (
        f"srun --output={TICKETS}/{{uid}}/$1-%t true",
        f"sbatch -o {TICKETS}/{{uid}}/$1 --wait --wrap true",
        f"sbatch -o /proc/1/root{TICKETS}/{{uid}}/$1 --wait --wrap true",
    )
    return _forged(arena, user, "\n".join(lines))


def ticket_by_link(arena: Arena, user: str) -> Outcome:
    """A link, as a ticket is, brought by sbcast: it brings what the link leads to."""
    link = "ln -s ticket {here}/link; echo ticket >{here}/ticket"
    return _forged(arena, user, f"{link}; salloc -Q sbcast -f {{here}}/link {TICKETS}/{{uid}}/$1")


def ticket_of_the_outside(arena: Arena) -> Outcome:
    """What must go on working, and shows that the way is one: the administrator's."""
    out = fresh(arena)
    # PMIx makes its directory in the node's /tmp, which is read-only.
    command = ("srun", "--mpi=none", "-w", "worker-1", "--no-jail", "cat", f"{OPEN}/0")
    done = arena.on_worker(*command)
    (out / "said").write_text(done.out + done.err)
    return judge_secret(arena, done.out, last_line(done.err))
