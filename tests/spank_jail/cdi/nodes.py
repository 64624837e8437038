# SPDX-License-Identifier: Apache-2.0
"""Makes nodes for tests of jail-driver, which collects the GPU driver of a node (docs/jail-driver.md).

A node is a mount namespace with a /run of its own; all share one jail.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock.paths import PROJECT
from tests.spank_jail.cdi.driver import DEV, LIBRARIES, PROGRAMS, SYSTEM, Driver

DIRECTORY = "/run/cellblock/driver"
_CURRENT = f"{DIRECTORY}/current"
LINE = f"cdi cellblock.driver/node=all cdi spec-dir={_CURRENT},nofail,x-jail.if={_CURRENT}/driver.json\n"
"""The line of the plan: the same on every node."""

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Node:
    """A mount namespace, held by a process that sleeps in it. `empty` is a directory without anything."""

    pid: int
    programs: Path
    root: Path
    plan: Path
    empty: Path

    def command(self, *command: str | Path) -> list[str]:
        """`command`, to be run on this node."""
        return ["nsenter", f"--mount=/proc/{self.pid}/ns/mnt", *map(str, command)]

    def run(self, *command: str | Path) -> Done:
        """Runs it there."""
        return subprocess.run(self.command(*command), capture_output=True, text=True, timeout=120)

    def collect(self, *options: str | Path) -> Done:
        """`jail-driver collect`, which sees no driver but what the options name."""
        nowhere = []
        for option in ("--spec-dir", "--libraries", "--programs", "--dev"):
            if option not in options:
                nowhere += [option, self.empty]
        return self.run(self.programs / "jail-driver", "collect", "--jail", self.root, *nowhere, *options)

    def inside(self, *command: str) -> list[str]:
        """`command`, to be run in the jail as a job of this node would."""
        place = ("--root", self.root, "--plan", self.plan, "--level", "filesystem", "--")
        return self.command(self.programs / "jail-enter", *place, *command)

    def loaded(self) -> str:
        """The version of the driver that a program in the jail finds; 100 is the stub's answer."""
        done = subprocess.run(self.inside("/data/program"), capture_output=True, text=True, timeout=120)
        return done.stdout.strip() or done.stderr

    def listing(self, path: str = "current") -> list[str]:
        """Names in a directory of the driver's."""
        return sorted(self.run("ls", f"{DIRECTORY}/{path}").stdout.split())

    def generation(self) -> str:
        """Where `current` leads."""
        return self.run("readlink", f"{DIRECTORY}/current").stdout.strip()


def by_cdi(driver: Driver) -> tuple[str | Path, ...]:
    """Options by which a driver is found by its specification."""
    return ("--spec-dir", driver.specs)


def injected(driver: Driver) -> tuple[str | Path, ...]:
    """Options by which it is found as a container runtime injects it."""
    return ("--libraries", driver.files, "--programs", driver.files)


def write_plan(plan: Path, root: Path) -> None:
    """Gives the jail a plan that shows the node's programs, and its driver."""
    plan.write_text(f"{SYSTEM}{DEV}tmpfs /run tmpfs mode=755\n{LINE}")
    # As images/jail has it: the image's own ldconfig, and the distribution's, which is linked statically.
    (root / "sbin").mkdir(exist_ok=True)
    shutil.copy2(PROJECT / "images/jail/files/usr/libexec/cellblock/ldconfig", root / "sbin/ldconfig")
    there = [path for path in (Path("/sbin/ldconfig.real"), Path("/sbin/ldconfig")) if path.exists()]
    shutil.copy2(there[0], root / "sbin/ldconfig.distribution")
    for folder in (LIBRARIES, PROGRAMS):
        assert (root / folder).is_dir()


@contextmanager
def running(programs: Path, root: Path, plan: Path, empty: Path) -> Iterator[Node]:
    """A node, until the block ends."""
    script = "mount -t tmpfs -o mode=755,noexec tmpfs /run && echo there && exec sleep 600"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "there\n"
        try:
            yield Node(process.pid, programs, root, plan, empty)
        finally:
            process.kill()
