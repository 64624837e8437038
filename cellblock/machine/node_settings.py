# SPDX-License-Identifier: Apache-2.0
"""Checks the sysctls of this machine that shield users from each other; `doctor` shows them, `up` warns.

The jail is safe without them: they protect careless programs, in the jail and on the node. Only user
namespaces are required, by the munged that runs in the jail, and `up` does not start without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.events import Events

PROC_SYS = Path("/proc/sys")
KEEP_IN = "/etc/sysctl.d/60-cellblock.conf"
"""Where sysctl(8) finds settings when the machine starts."""


@dataclass(frozen=True)
class NodeSetting:
    """A setting by its name for sysctl(8): its safe values, the one to set, and what another one means.

    `absent` is the value to which a kernel without the setting is equal; None: nothing can be set there.
    """

    name: str
    safe: range
    wanted: int | str
    otherwise: str
    absent: int | None = None

    @property
    def advice(self) -> str:
        """What it means that the value is not safe, and how to set it now and for ever."""
        line = f"{self.name}={self.wanted}"
        return f"{self.otherwise}: sysctl -w {line}; to keep it: echo {line} >> {KEEP_IN}"

    def read(self, folder: Path) -> int | None:
        """The value below `folder`, which is like /proc/sys; None where there is nothing to set.

        Raises CellblockError when it cannot be read.
        """
        path = folder / self.name.replace(".", "/")
        try:
            return self.number(path.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            return self.absent
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a number"
            raise CellblockError(f"{path}: cannot be read: {reason}", hint="run as root") from error

    def number(self, text: str) -> int:
        """The value for `safe` of what the file says. Raises ValueError."""
        return int(text)

    def shown(self, value: int | None) -> str:
        """The value in words, for a report."""
        return str(value)


class ProgramSetting(NodeSetting):
    """A setting whose text may name a program by a pipe: 1 if it does, else 0."""

    def number(self, text: str) -> int:
        """See the class."""
        return int(text.startswith("|"))

    def shown(self, value: int | None) -> str:
        """See NodeSetting."""
        return "names a program" if value else "names no program"


_ON = range(1, 2**31)

USER_NAMESPACES = NodeSetting(
    "user.max_user_namespaces",
    _ON,
    15000,
    "no user namespaces: `up` needs one for the jail's munged (or --jail-root operator), and each "
    "container of "
    "a user one",
    absent=0,
)

NODE_SETTINGS = (
    NodeSetting(
        "fs.protected_symlinks",
        _ON,
        1,
        "a program that opens a file in /tmp or /var/tmp follows another user's symlink there, and may "
        "overwrite "
        "a file that this user may not",
    ),
    NodeSetting(
        "fs.protected_hardlinks",
        _ON,
        1,
        "users may hard-link others' files that they cannot read or write, keep them after an upgrade, and "
        "have "
        "programs change them",
    ),
    NodeSetting(
        "fs.protected_fifos",
        _ON,
        1,
        "a program that writes a file in /tmp or /var/tmp may write to another user's FIFO of that name, who "
        "reads it",
    ),
    NodeSetting(
        "fs.protected_regular",
        _ON,
        1,
        "a program that writes a file in /tmp or /var/tmp may write to another user's file of that name, who "
        "reads and changes it",
    ),
    NodeSetting(
        "kernel.yama.ptrace_scope",
        _ON,
        1,
        "each process may trace every other of its user: who takes over one job has all of that user's (1 "
        "takes "
        "`gdb -p` and Open MPI's CMA transport away)",
    ),
    USER_NAMESPACES,
    NodeSetting(
        "kernel.unprivileged_userns_clone",
        _ON,
        1,
        "users' containers (enroot, pyxis, unshare) do not start in jobs",
    ),
    NodeSetting(
        "dev.tty.legacy_tiocsti",
        range(1),
        0,
        "a program may type into its terminal what the shell that started it then runs; the jail refuses "
        "that, "
        "programs outside it do not",
    ),
    ProgramSetting(
        "kernel.core_pattern",
        range(1),
        "core",
        "it names a program, which the kernel runs as root, outside the jail, for each process of a job that "
        "crashes: it reads what users wrote, and what it keeps fills the node's disk",
    ),
)


@dataclass(frozen=True)
class CheckedSetting:
    """A setting as it was found. `value` is None where the kernel has none, or it could not be read: see "
    "`why`."""

    setting: NodeSetting
    value: int | None
    why: str = ""

    @property
    def safe(self) -> bool:
        """Whether there is nothing to set."""
        return self.value is None or self.value in self.setting.safe


def check_settings(folder: Path = PROC_SYS) -> Iterator[CheckedSetting]:
    """Look at each of NODE_SETTINGS below `folder`, which is like /proc/sys."""
    for setting in NODE_SETTINGS:
        try:
            value = setting.read(folder)
        except CellblockError as error:
            yield CheckedSetting(setting, None, error.message)
        else:
            yield CheckedSetting(
                setting, value, "" if value is not None else "this kernel has no such setting"
            )


def warn_of_node(events: Events, folder: Path = PROC_SYS) -> None:
    """Warn in one line of settings that are not safe."""
    unsafe = [one.setting.name for one in check_settings(folder) if not one.safe]
    if unsafe:
        events.warning(
            f"settings of this machine shield users less from each other than they could: "
            f"{', '.join(unsafe)}; "
            "`python3 build.py doctor` says what each means and how to set it"
        )


def refuse_without_user_namespaces(folder: Path = PROC_SYS) -> None:
    """Raise CellblockError where no user namespace can be made, which the jail's munged runs in."""
    if USER_NAMESPACES.read(folder) == 0:
        raise CellblockError(
            "this machine has no user namespaces (user.max_user_namespaces), and the jail's munged, to "
            "which root "
            "in the jail is nobody, runs in one",
            hint=f"sysctl -w {USER_NAMESPACES.name}={USER_NAMESPACES.wanted}; or use --jail-root operator, "
            "if "
            "whoever is root in the jail may administer Slurm",
        )
