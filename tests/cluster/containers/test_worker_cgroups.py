# SPDX-License-Identifier: Apache-2.0
"""A worker's cgroups, on a cgroup v2 hierarchy of this machine: slurmd gets the controllers at each start."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock.paths import PROJECT

FILES = PROJECT / "images" / "worker" / "files" / "usr" / "lib" / "cellblock"

# As a container with a cgroup namespace of its own sees them.
WITHIN = """
mount -t cgroup2 cgroup2 /sys/fs/cgroup
die() { echo "$*" >&2; exit 1; }
%(own_cgroup)s
own_cgroup
cat /sys/fs/cgroup/cgroup.subtree_control /sys/fs/cgroup/system.slice/cgroup.subtree_control
# Of a program of the image, in a folder that is the test's.
mount -t tmpfs tmpfs /usr/sbin
cat > /usr/sbin/slurmd <<'end'
%(slurmd)s
end
chmod 755 /usr/sbin/slurmd
for start in 1 2; do
    %(in_own_cgroup)s -D --conf-server controller
done
find /sys/fs/cgroup -name 'slurmd.*' | wc -l
"""

# What slurmd does with the group that it starts in, where INVOCATION_ID says that systemd started it.
SLURMD = """#!/bin/sh
set -eu
group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
mkdir $group/system
echo $$ > $group/system/cgroup.procs
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo +$controller > $group/cgroup.subtree_control
done
echo "slurmd $*: $(cat $group/system/cgroup.controllers), ${INVOCATION_ID:-without systemd}"
"""


def hierarchy() -> Path | None:
    """Where the cgroup v2 hierarchy of this machine is mounted, if it has one."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup with a controller: that of a container."""
    top = hierarchy()
    if os.geteuid() != 0 or top is None:
        pytest.skip("makes cgroups of version 2, which takes root and a hierarchy of them")
    made = top / f"cellblock-test-{os.getpid()}"
    try:
        for controller in (top / "cgroup.controllers").read_text().split():
            (top / "cgroup.subtree_control").write_text(f"+{controller}")
        made.mkdir()
    except OSError as error:
        pytest.skip(f"makes cgroups of version 2, which this machine refuses: {error}")
    if not (made / "cgroup.controllers").read_text().split():
        made.rmdir()
        pytest.skip("hands down controllers of cgroup v2, of which this machine has none")
    yield made
    for folder in sorted(made.rglob("*/"), reverse=True):
        if folder.is_dir():
            folder.rmdir()
    made.rmdir()


def own_cgroup() -> str:
    """The function of role-worker."""
    text = (FILES / "role-worker.j2").read_text()
    start = text.index("own_cgroup() {")
    return text[start : text.index("\n}\n", start) + 3]


def test_slurmd_hands_all_controllers_down_whenever_it_starts(group: Path) -> None:
    program = FILES / "in-own-cgroup" / "slurmd"
    script = WITHIN % {"own_cgroup": own_cgroup(), "slurmd": SLURMD, "in_own_cgroup": program}
    enter = f'echo $$ > {group}/cgroup.procs; exec unshare --cgroup --mount sh -euc "$0"'
    done = subprocess.run(
        ["sh", "-euc", enter, script], capture_output=True, text=True, timeout=60, check=False
    )
    controllers = (group / "cgroup.controllers").read_text().strip()
    told = f"slurmd -D --conf-server controller: {controllers}, cellblock"
    assert (done.stdout.splitlines(), done.stderr) == ([controllers, controllers, told, told, "1"], "")
