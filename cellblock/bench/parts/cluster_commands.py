# SPDX-License-Identifier: Apache-2.0
"""Runs build.py, podman, and commands in the containers of the cluster that `bench cluster` measures."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from cellblock.cluster.engine.api import podman_environment
from cellblock.cluster.engine.container_specs import container_name
from cellblock.errors import CellblockError
from cellblock.paths import PROJECT


def build(*arguments: str, more: Mapping[str, str], check: bool = True) -> None:
    """Run build.py as a user does, with `more` in its environment."""
    command = [sys.executable, "-m", "cellblock.cli", *arguments]
    done = subprocess.run(
        command, cwd=PROJECT, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    if check and done.returncode:
        last = (done.stderr or done.stdout).strip()[-800:]
        raise CellblockError(f"build.py {' '.join(arguments)} failed: {last}", hint="run it by hand")


def inside(name: str, hostname: str, *command: str) -> str:
    """What a command prints as root in a container of cluster `name`, outside the jail."""
    done = podman("exec", container_name(name, hostname), *command)
    if done.returncode:
        raise CellblockError(
            f"{hostname}: {command[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}",
            hint=f"python3 build.py logs --name {name}",
        )
    return done.stdout


def podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run podman as the cluster's containers are run."""
    environment = {**os.environ, **podman_environment()}
    return subprocess.run(
        ["podman", *arguments], env=environment, capture_output=True, text=True, check=False
    )
