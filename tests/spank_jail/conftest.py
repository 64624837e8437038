"""A small jail on disk, and a namespace of one's own in which the core can enter it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PRELUDE = """
import ctypes, errno, json, os, stat, subprocess, sys
from pathlib import Path
from cellblock.jail import mount_core as core
base = Path(sys.argv[1]); root = base / "root"; plan = base / "plan"

def tell(**facts):
    print(json.dumps(facts))

def mounts():
    return [line.split()[4] for line in open("/proc/self/mountinfo")]

def enter(**options):
    return core.enter(root, plan, trust_owners=True, **options)

def errno_of(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"

libc = ctypes.CDLL(None, use_errno=True)

# Name of the errno of a system call that is made directly, or "done".
def syscall_error(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0)))
    return errno.errorcode[ctypes.get_errno()] if result == -1 else "done"

# What `action` comes to, in a fork, when the nth system call of the core fails with `number`.
def attempt(action, nth, number):
    reader, writer = os.pipe()
    if not os.fork():
        before = len(os.listdir("/proc/self/fd"))
        with core.failing_call(nth, number):
            try:
                done = action()
                result = "done after %d" % core.calls_made() + (": %s" % done if done else "")
            except core.JailError as error:
                named = error.syscall and error.number == number and error.message
                result = "clean" if named else "unnamed: " + error.message
                if os.path.exists("/proc/self/fd") and len(os.listdir("/proc/self/fd")) != before:
                    result = "descriptor left open: " + error.message
        os.write(writer, result.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as stream:
        result = stream.read()
    os.wait()
    return result

# The results of `attempt`, until the call that was to fail lies beyond the last one: a failure that is
# survived by design must not hide the calls after it.
def with_each_call_failing(action, number=errno.EIO):
    results, nth = [], 1
    calls = lambda result: int(result.split()[2].strip(":"))
    while not results or not (results[-1].startswith("done") and calls(results[-1]) < nth):
        results.append(attempt(action, nth, number))
        nth += 1
    return results[:-1]
"""

# Of the running system, under a layer that takes what is written: a Debian with everything in it.
DISTRIBUTION = """
for command in (["-t", "tmpfs", "tmpfs", str(base)], None, ["-t", "overlay", "overlay", "-o",
                "lowerdir=/,upperdir=%s/up,workdir=%s/work" % (base, base), str(root)]):
    if command is None:
        for folder in ("up", "work", "root"):
            (base / folder).mkdir()
        continue
    subprocess.run(["mount", *command], check=True)
plan.write_text(PLAN)

def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    return done.stdout.strip() if done.returncode == 0 else "%d: %s" % (done.returncode, done.stderr.strip())

def enter_confined(level="capabilities"):
    enter(level=level)
    core.confine(level)
    core.confine_final(level)
"""
DISTRIBUTION_PLAN = """\
proc   /proc proc   defaults
sysfs  /sys  sysfs  defaults
dev    /dev  dev    mode=0755,size=1m
devpts /dev/pts devpts mode=0620,ptmxmode=0666,gid=5
tmpfs  /dev/shm tmpfs mode=1777,size=10%
tmpfs  /run  tmpfs  mode=0755,size=2m
tmpfs  /tmp  tmpfs  mode=1777,size=10%
"""

# A user namespace makes root of anybody; the PID and network ones let it mount /proc and /sys.
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--net", "--ipc"]


@dataclass(frozen=True)
class Jail:
    """`root` becomes "/", `plan` is the mount plan, `node` is a directory of the node to bind from."""

    base: Path
    root: Path
    plan: Path
    node: Path

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Runs Python in namespaces of its own; PRELUDE says what it can use."""
        program = PRELUDE + textwrap.dedent(script)
        return subprocess.run(
            [*UNSHARE, sys.executable, "-c", program, str(self.base)],
            capture_output=True,
            text=True,
            timeout=60,
        )

    def facts(self, script: str, plan: str | None = None) -> dict[str, Any]:
        """The same; returns what the script tells. `plan`: lines to write first, {node} replaced."""
        if plan is not None:
            self.plan.write_text(textwrap.dedent(plan).replace("{node}", str(self.node)))
        done = self.run(script)
        assert done.returncode == 0, done.stderr
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts


@dataclass(frozen=True)
class Distribution:
    """The running system as a jail, entered by the node's real root. What is written there is dropped."""

    base: Path

    def facts(self, script: str) -> dict[str, Any]:
        """Runs Python in a mount namespace of its own, returns what the script tells."""
        text = PRELUDE + f"PLAN = {DISTRIBUTION_PLAN!r}\n" + DISTRIBUTION + textwrap.dedent(script)
        command = ["unshare", "--mount", sys.executable, "-c", text, str(self.base)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts


@pytest.fixture
def distribution(tmp_path: Path) -> Distribution:
    if os.geteuid():
        pytest.skip("needs root: what the node's own root loses is what is tested")
    if "overlay" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no overlay file system to make a distribution from the running one")
    return Distribution(tmp_path)


@pytest.fixture(scope="session")
def namespaces() -> None:
    if not shutil.which("unshare"):
        pytest.skip("unshare (util-linux) is not installed")
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no user namespaces here: {tried.stderr.strip()}")


@pytest.fixture
def jail(tmp_path: Path, namespaces: None) -> Jail:
    root, node = tmp_path / "root", tmp_path / "node"
    for folder in ("proc", "sys", "dev", "etc", "tmp", "run", "data"):
        (root / folder).mkdir(parents=True)
    (root / "etc/os-release").write_text("NAME=jail\n")
    (node / "below").mkdir(parents=True)
    (node / "file").write_text("of the node\n")
    plan = tmp_path / "plan"
    plan.write_text("")
    return Jail(tmp_path, root, plan, node)


@pytest.fixture
def write_plan(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "jail.fstab"
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def tree(tmp_path: Path) -> Any:
    """A directory as a tree for resolve(): its path and an O_PATH descriptor."""
    (tmp_path / "tree/etc").mkdir(parents=True)
    fd = os.open(tmp_path / "tree", os.O_PATH | os.O_DIRECTORY)
    yield tmp_path / "tree", fd
    os.close(fd)
