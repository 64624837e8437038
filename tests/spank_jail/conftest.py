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
import errno, json, os, stat, sys
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
