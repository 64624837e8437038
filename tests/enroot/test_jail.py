# SPDX-License-Identifier: Apache-2.0
"""In the project's own jail, which refuses clone3 and cgroup namespaces and shows a masked /proc and /sys."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import c_compiling
from tests.enroot.conftest import Enroot
from tests.spank_jail.conftest import DISTRIBUTION_PLAN

JAIL = Path(__file__).parents[2] / "spank_jail"

# The running system as the jail, under a layer that takes what is written.
OVERLAY = (
    'base=$1; shift; mount -t tmpfs tmpfs "$base"; cd "$base"; mkdir up work root;'
    " mount -t overlay overlay -o lowerdir=/,upperdir=up,workdir=work root;"
    ' exec "$0" --root "$PWD/root" "$@"'
)


@pytest.fixture(scope="module")
def jail_enter() -> Path:
    if os.geteuid():
        pytest.skip("needs root: it enters a jail")
    return c_compiling.compiled(JAIL, "jail-enter", "init")


@pytest.mark.parametrize("level", ["filesystem", "capabilities", "pid"])
@pytest.mark.parametrize("root", [False, True])
def test_containers_start_in_the_jail(
    shared: Enroot, jail_enter: Path, tmp_path: Path, level: str, root: bool
) -> None:
    plan = tmp_path / "plan"
    # /dev/fuse as udev makes it: everybody's, as the cluster's plan has it for starts of image files.
    fuse = f"{shared.base}/fuse /dev/fuse none bind,dev,nosuid,noexec,x-create=file\n"
    plan.write_text(DISTRIBUTION_PLAN.replace("tmpfs  /tmp", "tmpfs  /mnt") + fuse)
    (tmp_path / "base").mkdir()
    owner = [] if root else ["--user", shared.home.owner()]
    environment = shared.environment()
    if root:
        # In its user namespace root is nobody to the folders of others.
        environment["ENROOT_DATA_PATH"] = str(tmp_path / "data")
        create = [shared.program, "create", "-n", "small", shared.home / "small.sqsh"]
        subprocess.run(create, env=environment, check=True)
        environment["ENROOT_RUNTIME_PATH"] = str(tmp_path / "run")
    script = "id -u; : > /tmp/x; chown 7 /tmp/x && [ -e /proc/self/status ] && ls /sys | grep -c kernel"

    def run(*options: str, name: str = "small") -> subprocess.CompletedProcess[str]:
        assignments = [f"{key}={value}" for key, value in environment.items()]
        enroot = ["env", *assignments, str(shared.program), "start", *options, name, "sh", "-c", script]
        command = [
            "unshare",
            "--mount",
            "sh",
            "-euc",
            OVERLAY,
            str(jail_enter / "jail-enter"),
            str(tmp_path / "base"),
        ]
        command += ["--plan", str(plan), "--level", level, "--init", str(jail_enter / "jail-init"), *owner]
        return subprocess.run([*command, "--", *enroot], capture_output=True, text=True, timeout=60)

    uid = "0" if root else str(shared.home.stat().st_uid)
    for options in ((), ("--root",), ("--pid",)):
        done = run(*options)
        wanted = "0" if "--root" in options else uid
        assert done.stdout.split() == [wanted, "1"], (options, done.stderr)
    done = run(name=str(shared.home / "small.sqsh"))
    assert done.stdout.split() == [uid, "1"], done.stderr
