# SPDX-License-Identifier: Apache-2.0
"""Runs a machine with an NFS server and two hosts that mount it, wherever the tests run.

The kernel that runs the tests often has no NFS, neither client nor server, and a test could not load it.
Debian's and Ubuntu's user-mode-linux is a kernel that has both and runs as a process, in two seconds: its
root is this machine's, read-only, by hostfs, and its disk is a file. ada and bob are namespaces in it with
networks, names, processes and boot identities of their own. Each mounts the server by NFS 4.2 at /mnt/volume,
with root squashed at /mnt/squashed, and by NFS 4.1, which has no extended attributes, at /mnt/plain. What
nfs-ganesha would add, another server, is not tested.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cellblock.paths import PROJECT

KERNEL = "linux.uml"
MODULES = Path("/usr/lib/uml/modules")
TOOLS = (KERNEL, "rpc.nfsd", "rpc.mountd", "exportfs", "mount.nfs4", "ip", "mkfs.ext4")

PRELUDE = f"""
import json, os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import Options, assemble
from cellblock.jail.volume.shards import Shard
from cellblock.jail.volume.volume import Volume
from jail_trees import make_everything, snapshot

def tell(**facts):
    print(json.dumps(facts, default=str))
"""


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    status: int
    out: str
    err: str


@dataclass
class Machine:
    """A running one; `folder` is where requests are left for it."""

    folder: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self, host: str, *command: str) -> Path:
        """Runs a command on `host`: ada, bob or server. The result is for `wait`."""
        request = self.folder / f"{next(self.numbers)}.ask"
        part = request.with_suffix(".new")
        environment = {"PYTHONPATH": str(PROJECT), "CELLBLOCK_CACHE": "/tmp/cache"}
        part.write_text(json.dumps({"host": host, "command": command, "environment": environment}))
        part.rename(request)
        return request.with_suffix(".done")

    def wait(self, result: Path, timeout_s: float = 120) -> Done:
        """Until the command has ended."""
        deadline = time.monotonic() + timeout_s
        while not result.exists():
            assert time.monotonic() < deadline, "the machine did not answer"
            time.sleep(0.01)
        return Done(**json.loads(result.read_text()))

    def run(self, host: str, *command: str, timeout_s: float = 120) -> Done:
        """Both."""
        return self.wait(self.start(host, *command), timeout_s)

    def script(self, source: str) -> tuple[str, ...]:
        """The command that runs Python with PRELUDE."""
        return (sys.executable, "-c", PRELUDE + source)

    def facts(self, host: str, source: str, timeout_s: float = 120) -> dict[str, Any]:
        """Runs Python on `host`; returns what it tells."""
        done = self.run(host, *self.script(source), timeout_s=timeout_s)
        assert done.status == 0, done.err
        facts: dict[str, Any] = json.loads(done.out.splitlines()[-1])
        return facts

    def jail(self, host: str, *arguments: str) -> tuple[str, ...]:
        """A command of `build.py jail`."""
        return (sys.executable, "-m", "cellblock.cli", "jail", *arguments)


@contextmanager
def running(folder: Path) -> Iterator[Machine]:
    """Boots it; skips, loudly, where it cannot be."""
    lacking = [tool for tool in TOOLS if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")]
    if lacking:
        pytest.skip(
            f"NFS IS NOT TESTED: {', '.join(lacking)} not installed: `python3 build.py test` installs it"
        )
    modules = sorted(MODULES.glob("*/modules.dep"))
    if os.geteuid() or not modules:
        pytest.skip("NFS IS NOT TESTED: it needs root, and the modules of user-mode-linux")
    requests = folder / "requests"
    requests.mkdir()
    disk = folder / "disk"
    with disk.open("wb") as file:
        file.truncate(1 << 30)
    log = folder / "console"
    agent = Path(__file__).with_name("nfs_agent.py")
    command = [
        *(KERNEL, "mem=700M", f"ubda={disk}", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"),
        *("con=null", "con0=fd:0,fd:1", "quiet", "loglevel=3", f"init={sys.executable}", "--"),
        *(str(agent), str(requests), str(modules[-1].parent)),
    ]
    with log.open("wb") as console:
        # Its memory is a file in TMPDIR, which has to have room.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env={**os.environ, "TMPDIR": str(folder)},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 120
        while not (requests / "ready").exists():
            ended = process.poll() is not None or time.monotonic() > deadline
            if ended or (requests / "failed").exists():
                failed = requests / "failed"
                reason = failed.read_text() if failed.exists() else log.read_text(errors="replace")[-2000:]
                pytest.fail(f"the machine with NFS did not start: {reason}")
            time.sleep(0.02)
        yield Machine(requests)
    finally:
        (requests / "stop").touch()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        disk.unlink()
