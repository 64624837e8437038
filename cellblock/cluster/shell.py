# SPDX-License-Identifier: Apache-2.0
"""Composes the podman or docker command lines that open shells and run commands in a cluster's containers.

`build.py shell` replaces itself by such a command; database.py pipes data through one.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from cellblock.cluster.definition.names import CONTROLLERS
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.api import connect, podman_environment
from cellblock.cluster.engine.container_specs import container_name
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError
from cellblock.privilege import require_root

# Seconds for the engine's client to say whether a container runs.
_INSPECT_S = 10


def shell_argv(
    name: str, command: Sequence[str] = (), *, user: str = "root", admin: bool = False, terminal: bool = True
) -> list[str]:
    """The command that opens a login shell of `user` in the jail, on the login node, or runs `command` there.

    `admin`: as root on the controller instead, outside the jail, where Slurm's commands are an operator's.
    `terminal` asks for one: right when the caller's standard input and output are one. Raises
    CellblockError when there is no such cluster.
    """
    known = state.require(name)
    flags = "-it" if terminal else "-i"
    if admin:
        host = CONTROLLERS[0]
        if CONTROLLERS[1] in known.containers:
            with connect(known.engine) as client:
                host = containers.controller(client, name) or host
        return exec_argv(known, host, command or ("bash", "--login"), flags)
    enter = ("jail-enter", "--user", user, *(("--", *command) if command else ()))
    return exec_argv(known, "login", enter, flags)


def exec_argv(
    known: state.ClusterState, hostname: str, command: Sequence[str], flags: str = "-i"
) -> list[str]:
    """The command that runs `command` as root in a container of the cluster, by the engine's own client."""
    return [*_program(known), "exec", flags, container_name(known.name, hostname), *command]


def _program(known: state.ClusterState) -> list[str]:
    """The engine's own client, with the settings of Cellblock's service."""
    if shutil.which(known.engine) is None:
        package = "docker.io" if known.engine == "docker" else known.engine
        raise CellblockError(f"{known.engine} is not installed", hint=f"apt-get install {package}")
    if known.engine != "podman":
        return [known.engine]
    require_root("clusters are containers of root's podman")
    return ["env", *(f"{key}={value}" for key, value in podman_environment().items()), "podman"]


def require_running(name: str, argv: Sequence[str]) -> None:
    """Raise CellblockError when the container that `argv`, of `shell_argv`, is for does not run.

    The engine's own words for that name no way on. What its client cannot say is no reason to refuse.
    """
    at = argv.index("exec")
    container = argv[at + 2]
    asked = [*argv[:at], "inspect", "--type=container", "--format={{.State.Status}}", container]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=_INSPECT_S)
    except (OSError, subprocess.TimeoutExpired):
        return
    status = done.stdout.strip()
    if status == "running" or (done.returncode and "no such" not in done.stderr.lower()):
        return
    raise CellblockError(
        f"cluster {name}: container {container} does not run ({status or 'it is gone'})",
        hint=f"{state.same_up(name)} starts what is missing",
    )
