# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the plugin: a small jail on disk, and a namespace in which C code can enter it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PRELUDE = """
import ctypes, errno, json, os, shutil, stat, subprocess, sys
from pathlib import Path
from tests.spank_jail import mount_core as core
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

# What came of `action` when the nth system call of the core failed with `number`. In a fork, for after a
# failure a process is good for nothing else; `own` is its /proc/self, which the jail may hide.
def attempt(action, nth, number):
    reader, writer = os.pipe()
    if not os.fork():
        own = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY)
        def descriptors():
            fd = os.open("fd", os.O_RDONLY | os.O_DIRECTORY, dir_fd=own)
            try:
                return len(os.listdir(fd))
            finally:
                os.close(fd)
        before, told = descriptors(), {}
        with core.failing_call(nth, number):
            try:
                told["done"] = action()
            except core.JailError as error:
                told.update(error=error.message, number=error.number, syscall=error.syscall)
            told["failed"] = core.failed_call()
        told["leaked"] = descriptors() - before
        mountinfo = open(os.open("mountinfo", os.O_RDONLY, dir_fd=own)).read()
        told["mounts"] = [line.split()[4] for line in mountinfo.splitlines()]
        os.write(writer, json.dumps(told).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as stream:
        told = json.loads(stream.read())
    os.wait()
    return told

# All attempts, the last of them the one in which no call was left to fail.
def with_each_call_failing(action, number=errno.EIO, clean_up=lambda: None):
    results = []
    while not results or results[-1]["failed"]:
        results.append(attempt(action, len(results) + 1, number))
        clean_up()
    return results

# How each failure ended: "clean", the call is named and nothing left open; what the action returned where it
# was survived; or what is wrong.
def ends(results, number=errno.EIO):
    def end(told):
        if "error" not in told:
            return told["done"]
        if told["leaked"]:
            return "descriptor left open: " + told["error"]
        named = told["syscall"] and told["number"] == number and told["error"]
        return "clean" if named else "unnamed"
    return [end(told) for told in results[:-1]]
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
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, as the execution does that comes next in a task
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

# What `unshare` below does, in Python: for a user who cannot even read this project's environment.
BECOME = """
import ctypes

def become(uid):
    library = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    library.prctl(4, 1)  # PR_SET_DUMPABLE: else /proc/self still is root's
    os.chdir("/")
    if library.unshare(0x10000000 | 0x20000 | 0x20000000 | 0x40000000 | 0x08000000):  # user mnt pid net ipc
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {uid} 1")):
        Path("/proc/self", name).write_text(text)
    child = os.fork()
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xff)
"""
NOBODY = 65534

# A user namespace makes root of anybody; the PID and network ones let it mount /proc and /sys.
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--net", "--ipc"]


@dataclass(frozen=True)
class Jail:
    """`root` becomes "/", `plan` is the mount plan, `node` is a directory of the node to bind from."""

    base: Path
    root: Path
    plan: Path
    node: Path
    uid: int | None = None
    """Whose namespaces scripts run in, where that is not whoever runs the tests."""

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Runs Python in namespaces of its own; PRELUDE says what it can use."""
        program = PRELUDE + textwrap.dedent(script)
        prefix = UNSHARE
        if self.uid is not None:
            program, prefix = f"{PRELUDE}{BECOME}become({self.uid})\n{textwrap.dedent(script)}", []
        return subprocess.run(
            [*prefix, sys.executable, "-c", program, str(self.base)],
            capture_output=True,
            text=True,
            timeout=300,
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


def make_jail(base: Path, uid: int | None = None) -> Jail:
    root, node = base / "root", base / "node"
    for folder in ("proc", "sys", "dev", "etc", "tmp", "run", "data"):
        (root / folder).mkdir(parents=True)
    (root / "etc/os-release").write_text("NAME=jail\n")
    (node / "below").mkdir(parents=True)
    (node / "file").write_text("of the node\n")
    plan = base / "plan"
    plan.write_text("")
    return Jail(base, root, plan, node, uid)


@pytest.fixture
def jail(tmp_path: Path, namespaces: None) -> Jail:
    return make_jail(tmp_path)


@pytest.fixture
def jail_of_a_user(namespaces: None) -> Iterator[Jail]:
    """The same for a user who is root nowhere else; as such a one where the tests run as root."""
    base = Path(tempfile.mkdtemp(prefix="cellblock-test-"))  # pytest's own folders are root's alone
    try:
        made = make_jail(base, uid=None if os.geteuid() else NOBODY)
        if made.uid is not None:
            base.chmod(0o755)
            for path in (base, *base.rglob("*")):
                os.chown(path, made.uid, made.uid)
        tried = made.run("tell(uid=Path('/proc/self/uid_map').read_text().split())")
        if tried.returncode:
            pytest.skip(f"users may not make namespaces here: {tried.stderr.strip().splitlines()[-1]}")
        outside = os.geteuid() if made.uid is None else made.uid
        assert json.loads(tried.stdout)["uid"] == ["0", str(outside), "1"]
        yield made
    finally:
        shutil.rmtree(base)


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
