# SPDX-License-Identifier: Apache-2.0
"""Starts, stops and describes a cluster on this machine.

`start` brings a cluster to what its specification says or to nothing: a failure, or Ctrl-C, removes
what it made. A cluster that already is what was asked for is left alone.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

import docker
from docker.errors import DockerException

from cellblock.cluster import config, host, running, secrets, state
from cellblock.cluster.api import connect, podman_environment
from cellblock.cluster.containers import LABEL_ROLE, Container, container_name, fingerprint, plan
from cellblock.cluster.images import copy_to_docker, image_ids
from cellblock.cluster.model import SERVING, ClusterSpec, ClusterStatus, ContainerStatus, EngineName, Role
from cellblock.cluster.names import name_option
from cellblock.cluster.trial import try_configuration
from cellblock.errors import CellblockError
from cellblock.events import Events, SubjectState

# Seconds from the containers' start until all workers take jobs; two seconds is usual. The
# entrypoints give up after 60 by themselves, with a better message.
_READY_S = 75.0
_POLL_S = 0.1


def start(spec: ClusterSpec, events: Events) -> ClusterStatus:
    """Bring up the cluster `spec`; what already runs as asked is left alone.

    Raises CellblockError when the jail volume, the Docker API, an image or the port is missing, when
    another variant's cluster has the name, or when a daemon does not come up; then nothing is left.
    """
    started = time.monotonic()
    check_volume(spec)
    with state.locked(spec.name), connect(spec.engine) as client:
        known = state.read(spec.name)
        refuse_other(spec.name, spec.variant.name, spec.engine, spec.volume)
        if spec.engine == "docker":
            copy_to_docker(client, spec.images, events)
        cgroup = config.cgroup_for(spec, host.cgroup_mode())
        facts = config.facts(spec, host.cpus(), host.memory_mb())
        texts = config.render(spec, facts, cgroup)
        folder = state.folder(spec.name)
        containers = plan(spec, facts, folder, host.container_limits(), cgroup, host.pids_limit())
        wanted = fingerprint(containers, image_ids(client, spec.images), texts)
        if known and known.fingerprint == wanted:
            now = _describe(client, known)
            # A node that an administrator drained, or that is full, is no reason to end everybody's jobs.
            if now.runs:
                if not now.ready:
                    states = ", ".join(f"{node.name} {node.state}" for node in now.nodes) or "no node answers"
                    events.warning(f"cluster {spec.name} runs, but not all nodes take jobs: {states}")
                events.emit(SubjectState("cluster", "cached", f"{spec.name} runs"))
                return now
        # Before anything is taken away: what cannot start must not end what runs.
        check_port(known, spec.file.login.ssh_port)
        if known and _runs(client, known) and config.read(folder / "config") != texts:
            with events.step("cluster", "try the new configuration"):
                try_configuration(
                    client, spec.name, spec.images["controller"], facts.controller, texts, folder
                )
        if cgroup == "disabled":
            events.warning(
                "this host gives containers no cgroup v2 controllers that this Slurm can use: "
                "CgroupPlugin=disabled, so jobs are tracked, but not limited in memory, CPUs and devices"
            )
        running.remove(client, spec.name)
        # Again, now that nothing of the cluster runs: the engine follows links on the way to what it mounts,
        # and the jail's people could have made one of /etc.
        check_volume(spec)
        new = state.ClusterState(
            spec.name,
            spec.variant.name,
            spec.variant.release,
            spec.engine,
            list(spec.file.nodes),
            list(spec.file.default_nodes),
            spec.file.login.ssh_port,
            str(spec.volume),
            wanted,
        )
        _bring_up(client, new, containers, texts, folder, events)
        state.write(new)
        events.emit(SubjectState("cluster", "done", spec.name, time.monotonic() - started))
        return _describe(client, new, changed=True)


def _runs(client: docker.DockerClient, known: state.ClusterState) -> bool:
    return any(container.status == "running" for container in running.find(client, known.name))


def stop(name: str, events: Events) -> bool:
    """Remove the cluster with its secrets; the jail, Slurm's state and the accounting's database stay.

    Returns whether there was anything to remove. Raises CellblockError when there is no Docker API.
    """
    started = time.monotonic()
    kept = state.folder(name)
    if not kept.exists() and not _has_containers(name):
        return False  # and no folder is made to take a lock in
    with state.locked(name):
        found = (kept / "state.json").exists()
        for engine in _engines_to_ask(name):
            with connect(engine) as client:
                found = running.remove(client, name) or found
        state.forget(name)
    if found:
        events.emit(SubjectState("cluster", "stopped", name, time.monotonic() - started))
    return found


def _engines_to_ask(name: str) -> list[EngineName]:
    """The engine of cluster `name`; without its state (a start was killed) each one that answers.

    Raises CellblockError when none answers.
    """
    try:
        known = state.read(name)
    except CellblockError:
        known = None
    if known:
        return [known.engine]
    answering: list[EngineName] = []
    failures: list[CellblockError] = []
    for engine in get_args(EngineName):
        try:
            with connect(engine):
                answering.append(engine)
        except CellblockError as error:
            failures.append(error)
    if not answering:
        raise failures[0]
    return answering


def _has_containers(name: str) -> bool:
    """Whether an engine that answers has containers of cluster `name`."""
    for engine in _engines_to_ask(name):
        with connect(engine) as client:
            if running.find(client, name):
                return True
    return False


def status(name: str) -> ClusterStatus:
    """What runs of cluster `name`. Raises CellblockError when there is no such cluster."""
    known = state.require(name)
    with connect(known.engine) as client:
        return _describe(client, known)


def shell_argv(
    name: str, command: Sequence[str] = (), *, user: str = "root", admin: bool = False, terminal: bool = True
) -> list[str]:
    """The command that opens a login shell of `user` in the jail, on the login node, or runs `command` there.

    `admin`: as root on the controller instead, outside the jail, where Slurm's commands are an operator's.
    `terminal` asks for one: right when the caller's standard input and output are one. Raises
    CellblockError when there is no such cluster.
    """
    known = state.require(name)
    program: list[str] = [known.engine]
    if known.engine == "podman":
        program = ["env", *(f"{key}={value}" for key, value in podman_environment().items()), "podman"]
    flags = "-it" if terminal else "-i"
    if admin:
        return [
            *program,
            "exec",
            flags,
            container_name(name, "controller"),
            *(command or ("bash", "--login")),
        ]
    enter = ("jail-enter", "--user", user, *(("--", *command) if command else ()))
    return [*program, "exec", flags, container_name(name, "login"), *enter]


def in_jail(*command: str, user: str = "root") -> list[str]:
    """Arguments that run `command` in the jail, as `user` of the jail, when executed on the login node."""
    return ["jail-enter", "--plan", "/etc/cellblock/jail.fstab", "--user", user, "--", *command]


def check_volume(spec: ClusterSpec) -> None:
    """Raise CellblockError when the volume of `spec` holds no jail, or one of another Slurm release."""
    etc = spec.volume / "root" / "etc"
    if etc.is_symlink() or not (etc / "passwd").is_file():
        raise CellblockError(
            f"{spec.volume} holds no jail: {spec.volume}/root/etc/passwd is missing",
            hint=f"`build.py jail assemble jail {spec.volume}`",
        )
    file = spec.volume / "root" / "etc" / "cellblock" / "jail-release"
    release = jail_release(file)
    if release != spec.variant.release:
        raise CellblockError(
            f"the jail in {spec.volume} is of Slurm {release or '(unknown)'}, the cluster's images are of "
            f"{spec.variant.release}: client commands and plugins would not match",
            hint=f"use another volume for {spec.variant.name} (`up --name NAME` makes one), or delete "
            f"this one with all that users wrote: `build.py down --purge{name_option(spec.name)}`",
        )


def jail_release(file: Path) -> str | None:
    """Slurm's major.minor in a jail's /etc/cellblock/jail-release; None when it says none.

    Users write the jail: the file is data, and not followed out of it by a symlink.
    """
    try:
        if file.parent.is_symlink():
            return None
        # Not blocking: users can make a fifo of it. No more than it can hold in earnest.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            lines = opened.read(4096).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return next((line[14:] for line in lines if line.startswith("SLURM_RELEASE=")), None)


def refuse_other(name: str, variant: str, engine: str, volume: Path) -> None:
    """Raise CellblockError when cluster `name` exists with another variant, engine or volume."""
    known = state.read(name)
    if known is None:
        return
    asked = (variant, engine, str(volume))
    have = (known.variant, known.engine, known.volume)
    for what, mine, theirs in zip(("variant", "engine", "volume"), asked, have, strict=True):
        if mine != theirs:
            raise CellblockError(
                f"cluster {name} exists with {what} {theirs}, and {mine} was asked for",
                hint=f"`build.py down{name_option(name)}` ends it (the jail volume stays); then start "
                "again, or use --name for a second cluster beside it",
            )


def check_port(known: state.ClusterState | None, port: int) -> None:
    """Raise CellblockError when another program than the cluster `known` listens on `port`."""
    if known and known.ssh_port == port:
        return
    holder = host.port_holder(port)
    if holder:
        raise CellblockError(
            f"port {port} on 127.0.0.1, for ssh to the login node, is in use by {holder}",
            hint="name another with --ssh-port, or end that program",
        )


def _bring_up(
    client: docker.DockerClient,
    new: state.ClusterState,
    containers: tuple[Container, ...],
    texts: dict[str, str],
    folder: Path,
    events: Events,
) -> None:
    """Make files, network and containers and wait for Slurm; all or nothing."""
    (folder / "state.json").unlink(missing_ok=True)
    try:
        secrets.make_secrets(folder / "secrets", new.name)
        config.write(folder / "config", texts)
        for kept in ("slurmctld", "database"):
            (folder / kept).mkdir(mode=0o700, exist_ok=True)
        with events.step("cluster", "start containers"):
            running.create(client, new.name, containers)
        with events.step("cluster", "wait for Slurm"):
            _wait_ready(client, new)
    except BaseException as error:
        logs = running.last_lines(client, new.name)
        running.remove(client, new.name)
        state.forget(new.name)
        if isinstance(error, DockerException):
            raise CellblockError(
                f"cluster {new.name} could not be started: {error}{logs}",
                hint="`build.py doctor` checks this machine",
            ) from error
        if isinstance(error, CellblockError):
            raise CellblockError(f"{error.message}{logs}", hint=error.hint) from error
        raise


def _wait_ready(client: docker.DockerClient, new: state.ClusterState) -> None:
    deadline = time.monotonic() + _READY_S
    waiting_for = ""
    while time.monotonic() < deadline:
        for container in running.find(client, new.name):
            if container.status not in ("created", "running"):
                raise CellblockError(
                    f"cluster {new.name}: container {container.name} ended ({container.status})",
                    hint="its last lines are above; `build.py doctor` checks this machine",
                )
        waiting_for = _missing(client, new)
        if not waiting_for:
            return
        time.sleep(_POLL_S)
    raise CellblockError(
        f"cluster {new.name}: after {_READY_S:.0f} s, still waiting for {waiting_for}",
        hint="the containers' last lines are above",
    )


def _missing(client: docker.DockerClient, new: state.ClusterState) -> str:
    """What the cluster still lacks to be ready; empty when nothing."""
    nodes = running.nodes(client, new.name)
    if not nodes:
        return "slurmctld and its workers"
    if sum(node.state in SERVING for node in nodes) < len(new.nodes):
        shown = "; ".join(f"{node.name} is {node.state}" for node in nodes)
        return f"{len(new.nodes)} workers: {shown}"
    # sshd writes it once it listens.
    if not running.succeeds(client, new.name, "login", ["test", "-s", "/run/sshd.pid"]):
        return "sshd on login"
    return ""


def _describe(
    client: docker.DockerClient, known: state.ClusterState, *, changed: bool = False
) -> ClusterStatus:
    containers = tuple(
        ContainerStatus(
            container.name or "",
            cast(Role, container.labels.get(LABEL_ROLE)),
            container.status,
            container.attrs["Config"]["Image"],
        )
        for container in running.find(client, known.name)
    )
    alive = any(one.role == "controller" and one.state == "running" for one in containers)
    return ClusterStatus(
        known.name,
        known.variant,
        known.release,
        known.engine,
        known.ssh_port,
        secrets.ssh_key(state.folder(known.name) / "secrets"),
        Path(known.volume),
        containers,
        running.nodes(client, known.name) if alive else (),
        changed,
    )
