# SPDX-License-Identifier: Apache-2.0
"""Finds who uses a volume at the moment: its writer, and containers, steps and sessions of this machine.

`jail status` prints it. Other machines that mount the volume leave no trace in it, unless they write.
Nothing is written here.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cellblock.jail.volume.mount_table import mounts_of
from cellblock.jail.volume.volume import Volume, ask_anew
from cellblock.jail.volume.writer_lock import WriterLock, myself
from cellblock.machine.processes import PROC, all_processes, look_at_each

_HOST_NAME = "etc/hostname"
# A host name is of at most 64 bytes (gethostname(2)).
_LONGEST_NAME = 64


@dataclass(frozen=True)
class Writer:
    """The process that writes the volume. `alive` is None for one of another host, which cannot be asked.

    `heard_s`: seconds since its last sign of life, by the clocks of this host and of the volume's.
    """

    what: str
    host: str
    pid: int
    since: str
    alive: bool | None
    heard_s: float


@dataclass(frozen=True)
class Mounts:
    """Where this machine has the volume: `nodes` are host names of containers that mount it.

    `steps` counts the mount namespaces that have the tree alone, of steps and sessions, and `processes` those
    in them. `unseen` counts processes that keep everybody waiting who looks at them.
    """

    nodes: tuple[str, ...]
    steps: int
    processes: int
    unseen: int = 0


def writer(volume: Volume) -> Writer | None:
    """Read who writes the volume; None when nobody does."""
    ask_anew(volume.private)
    me = myself("jail status")
    lock = WriterLock(volume.private, volume.path, me)
    holder = lock.holder()
    if holder is None:
        return None
    heard = 0.0
    with suppress(OSError):
        heard = max(0.0, time.time() - (volume.private / "writer").stat().st_mtime)
    return Writer(holder.what, holder.host, holder.pid, holder.since, lock.is_alive(holder), round(heard, 1))


def mounts(volume: Volume) -> Mounts:
    """Look through the mount namespaces of this machine, as far as they can be seen from here."""
    place = _place(volume.path.resolve())
    if place is None:
        return Mounts((), 0, 0)
    device, whole = place
    tree = str(Path(whole) / "root")
    own = _namespace(PROC / "self")
    looked = look_at_each(all_processes(), _namespace)
    processes: dict[str, list[Path]] = {}
    for process, name in looked.found.items():
        if name and name != own:
            processes.setdefault(name, []).append(process)
    nodes, steps, inside = set[str](), 0, 0
    for members in processes.values():
        # Any of them may end at this moment.
        seen = next((found for each in members if (found := list(mounts_of(each)))), [])
        here = [each for each in seen if each.device == device]
        # The tree alone, wherever: a user may have made a namespace of his own in a step.
        if any(each.root == whole for each in here):
            # Daemons of one container have namespaces of their own. Any may begin to execute at this moment.
            names = look_at_each(members, _host_name).found.values()
            nodes.add(next((name for name in names if name), "?"))
        elif any(each.root == tree for each in here):
            steps += 1
            inside += len(members)
    return Mounts(tuple(sorted(nodes)), steps, inside, len(looked.silent))


def _namespace(process: Path) -> str:
    try:
        return str((process / "ns/mnt").readlink())
    except OSError:
        return ""


def _place(path: Path) -> tuple[str, str] | None:
    """The filesystem that holds `path`, and the path below that filesystem's root."""
    above = [each for each in mounts_of(PROC / "self") if path.is_relative_to(each.point)]
    if not above:
        return None
    # Of two at one place the later one lies on top.
    nearest = max(enumerate(above), key=lambda pair: (len(pair[1].point), pair[0]))[1]
    return nearest.device, str(Path(nearest.root) / path.relative_to(nearest.point))


def _host_name(process: Path) -> str:
    """The name in a container's /etc/hostname, which the engine writes."""
    try:
        descriptor = os.open(process / "root" / _HOST_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return os.read(descriptor, _LONGEST_NAME).decode(errors="replace").strip()
        finally:
            os.close(descriptor)
    except OSError:
        return ""
