# SPDX-License-Identifier: Apache-2.0
"""Starts, stops and describes the containers of a local cluster: one on this machine, by podman or docker.

up.py makes the images and the jail before that. `start` starts the whole cluster or nothing: after a failure
or Ctrl-C it removes what it made. It leaves a cluster alone that already is what was asked for, and has
changing/apply.py change one that differs.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast, get_args

import docker
from docker.errors import DockerException

from cellblock.cluster.changing.apply import ClusterChange, Target
from cellblock.cluster.changing.changes import Changes, compare
from cellblock.cluster.changing.cluster_plan import plan_cluster
from cellblock.cluster.changing.configuration_trial import PLUGSTACK, try_configuration, try_on_nodes
from cellblock.cluster.changing.gone_nodes import forget_gone
from cellblock.cluster.changing.readiness import wait_ready
from cellblock.cluster.changing.release_check import refuse_converting, refuse_release
from cellblock.cluster.changing.waiting_jobs import WaitingJobs
from cellblock.cluster.configuration import config_files, secrets, ssh_keys, template_facts
from cellblock.cluster.definition.cluster_file import ClusterFile
from cellblock.cluster.definition.model import ClusterSpec, ClusterStatus, ContainerStatus, EngineName, Role
from cellblock.cluster.definition.names import CONTROLLERS, name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.api import connect
from cellblock.cluster.engine.container_specs import LABEL_ROLE, VERDICTS, container_name
from cellblock.cluster.engine.images import copy_to_docker, image_ids
from cellblock.cluster.facts import host, state
from cellblock.cluster.facts.upgrade_record import refuse_under_way
from cellblock.cluster.rotating.rotation import end_interrupted
from cellblock.errors import CellblockError
from cellblock.events import Events, SubjectState
from cellblock.paths import JAIL_RELEASE


def start(spec: ClusterSpec, events: Events, *, patience_s: float = 600.0) -> ClusterStatus:
    """Bring up the cluster `spec`; what already runs as asked is left alone.

    One that runs otherwise is changed: nodes that must start anew wait for their jobs, for `patience_s`
    seconds at most, and 0 ends them.

    Raises CellblockError when the jail volume, the Docker API, an image or the port is missing, when
    another variant's cluster has the name, or when a daemon does not come up. Nothing is left then of a
    cluster that did not run before; one that ran goes on.
    """
    started = time.monotonic()
    check_volume(spec)
    with state.locked(spec.name), connect(spec.engine) as client:
        known = state.read(spec.name)
        refuse_release(spec.name, spec.variant.release)
        refuse_other(spec.name, spec.variant.name, spec.engine, spec.volume)
        if spec.engine == "docker":
            copy_to_docker(client, spec.images, events)
        end_interrupted(client, known, events)
        folder = state.folder(spec.name)
        alive = containers.alive(client, spec.name)
        runs = known is not None and bool(known.containers) and bool(alive & set(CONTROLLERS))
        planned = plan_cluster(spec, folder, image_ids(client, spec.images), known if runs else None)
        target = planned.target
        changes = None
        if known and runs:
            old = config_files.read(folder / "config")
            changes = compare(
                *(known.containers, target.records, alive, old, target.texts, spec.variant.release)
            )
            if not changes.changes and not changes.files:
                if (known.file, known.options) != (target.state.file, target.state.options):
                    state.write(target.state)
                now = _describe(client, known)
                # A node that an administrator drained, or that is full, is no reason to touch anything.
                if not now.ready:
                    states = ", ".join(f"{node.name} {node.state}" for node in now.nodes) or "no node answers"
                    events.warning(f"cluster {spec.name} runs, but not all nodes take jobs: {states}")
                events.emit(SubjectState("cluster", "cached", f"{spec.name} runs"))
                return now
        if changes and changes.anew:
            _refuse_unless_asked(spec, changes, patience_s)
        # Before anything is taken away: what cannot start must not end what runs.
        check_ports(known, spec.file)
        if changes and changes.slurm:
            with events.step("cluster", "try the new configuration"):
                try_configuration(client, spec.name, spec.images["controller"], target.texts, folder)
                if old.get(PLUGSTACK) != target.texts[PLUGSTACK]:
                    try_on_nodes(client, spec.name, _node_images(target, known, alive), target.texts, folder)
        if planned.cgroup == "disabled":
            events.warning(
                "this host gives containers no cgroup v2 controllers that this Slurm can use: "
                "CgroupPlugin=disabled, so jobs are tracked, but not limited in memory, CPUs and devices"
            )
        if known and changes and not changes.anew:
            for change in changes.changes:
                effect = "" if change.effect == "nothing" else f"{change.effect}: "
                events.info(f"cluster: {effect}{change.what}")
            target.make_secrets(folder)
            make_folders(folder)
            _let_nodes_tell(target.state)
            ClusterChange(client, known, target, changes, folder, patience_s, events).apply()
        else:
            containers.remove(client, spec.name)
            # Again, now that nothing of the cluster runs: the engine follows links on the way to what it
            # mounts, and the jail's people could have made one of /etc.
            check_volume(spec)
            _bring_up(client, target, folder, events)
            state.write(target.state)
        events.emit(SubjectState("cluster", "done", spec.name, time.monotonic() - started))
        return _describe(client, target.state, changed=True)


def _node_images(target: Target, known: state.ClusterState | None, alive: set[str]) -> dict[str, str]:
    """Images -> a node: of those that run, which have the files before they start anew; and of the new."""
    before = known.containers if known else {}
    running_now = {host: one for host, one in before.items() if host in alive}
    both = (*target.records.items(), *running_now.items())
    return {str(one["image"]): host for host, one in both if one["role"] == "worker"}


def stop(name: str, events: Events, *, purge: bool = False) -> bool:
    """Remove the cluster with its secrets; the jail, Slurm's state and the accounting's database stay.

    Returns whether there was anything to remove. Raises CellblockError when there is no Docker API, and
    without `purge` while an upgrade is under way or slurmdbd converts the database.
    """
    started = time.monotonic()
    if not purge:
        refuse_under_way(name, "`down` would leave a cluster of two releases")
    kept = state.folder(name)
    if not kept.exists() and not _has_containers(name):
        return False  # and no folder is made to take a lock in
    with state.locked(name):
        found = (kept / "state.json").exists()
        for engine in _engines_to_ask(name):
            with connect(engine) as client:
                if not purge:
                    refuse_converting(client, name)
                found = containers.remove(client, name) or found
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
            if containers.find(client, name):
                return True
    return False


def status(name: str, waits_for: Callable[[str], None] = lambda text: None) -> ClusterStatus:
    """What runs of cluster `name`; `waits_for` is told of each thing before it is waited for.

    Raises CellblockError when there is no such cluster.
    """
    known = state.require(name)
    waits_for(f"the Docker API of {known.engine}")
    with connect(known.engine) as client:
        return _describe(client, known, waits_for=waits_for)


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
    file = spec.volume / "root" / JAIL_RELEASE
    release = jail_release(file)
    if release != spec.variant.release:
        raise CellblockError(
            f"the jail in {spec.volume} is of Slurm {release or '(unknown)'}, the cluster's images are of "
            f"{spec.variant.release}: client commands and plugins would not match",
            hint="start it with the variant of its jail, then upgrade it: "
            f"`build.py cluster upgrade{name_option(spec.name)}`; "
            f"or use another volume for {spec.variant.name} (`up --name NAME` makes one), or delete "
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
            upgrade = f"`build.py cluster upgrade --variant {mine}{name_option(name)}` upgrades it; "
            raise CellblockError(
                f"cluster {name} exists with {what} {theirs}, and {mine} was asked for",
                hint=(upgrade if what == "variant" else "")
                + f"`build.py down{name_option(name)}` ends it (the jail volume stays); then start again, or "
                "use --name for a second cluster beside it",
            )


def check_ports(known: state.ClusterState | None, file: ClusterFile) -> None:
    """Raise CellblockError when another program than the cluster `known` has a port that `file` names."""
    ours = {known.ssh_port, *known.rest_ports.values()} if known else set()
    if known:
        ours |= {one["metrics_port"] for one in known.containers.values() if one.get("metrics_port")}
    wanted = {file.login.ssh_port: ("ssh to the login node", "with --ssh-port")}
    if rest := template_facts.rest_facts(file):
        wanted |= dict.fromkeys(rest.ports.values(), ("the REST API", "in the cluster file, rest.port"))
    if file.metrics:
        wanted[file.metrics.port] = ("the exporter of metrics", "in the cluster file, metrics.port")
    for port, (purpose, where) in wanted.items():
        holder = None if port in ours else host.port_holder(port)
        if not holder:
            continue
        other = state.name_by_port(port)
        if other:
            holder, end = f"cluster {other}", f"stop that cluster: `build.py down{name_option(other)}`"
        else:
            end = "end that program"
        raise CellblockError(
            f"port {port} on 127.0.0.1, for {purpose}, is in use by {holder}",
            hint=f"name another {where}, or {end}",
        )


def _refuse_unless_asked(spec: ClusterSpec, changes: Changes, patience_s: float) -> None:
    """Raise CellblockError for changes that end all jobs, unless `--wait 0` said that they may."""
    if patience_s == 0:
        return
    said = "; ".join(change.what for change in changes.changes if change.effect == "anew")
    why = (
        "and daemons of the old `auth` and of the new one are strangers to each other"
        if changes.auth
        else f"and Slurm {spec.variant.release} loses jobs when single nodes do"
    )
    raise CellblockError(
        f"cluster {spec.name}: nodes that run would have to start anew ({said}), {why}",
        hint=f"{state.up_command(spec.name, spec.options, '--wait', '0')} starts the whole cluster anew: "
        "jobs that run end, and those that can be are queued again",
    )


def make_folders(folder: Path) -> None:
    """What the cluster keeps between two runs."""
    for kept in ("slurmctld", "database", "archive"):
        (folder / kept).mkdir(mode=0o700, exist_ok=True)
    (folder / "accounts").mkdir(mode=0o755, exist_ok=True)


def _let_nodes_tell(new: state.ClusterState) -> None:
    """Make the folders of the volume that workers write their counts to and the controller its verdicts of
    them, or remove them.

    It spares a volume that nobody asks for metrics of a write by each node.
    """
    for name in ("nodes", VERDICTS):
        place = Path(new.volume) / ".cellblock" / name
        if "metrics" in new.containers:
            place.mkdir(mode=0o755, exist_ok=True)
        else:
            shutil.rmtree(place, ignore_errors=True)


def _bring_up(client: docker.DockerClient, target: Target, folder: Path, events: Events) -> None:
    """Make files, network and containers and wait for Slurm; all or nothing."""
    new = target.state
    (folder / "state.json").unlink(missing_ok=True)
    try:
        target.make_secrets(folder)
        config_files.write(folder / "config", target.texts)
        make_folders(folder)
        _let_nodes_tell(new)
        with events.step("cluster", "start containers"):
            containers.create(client, new.name, new.engine, target.containers.values())
        with events.step("cluster", "wait for Slurm"):
            wait_ready(client, new)
        forget_gone(client, new, WaitingJobs(client, new.name, folder), events)
    except BaseException as error:
        logs = containers.last_lines(client, new.name) if isinstance(error, DockerException) else ""
        containers.remove(client, new.name)
        state.forget(new.name)
        if isinstance(error, DockerException):
            raise CellblockError(
                f"cluster {new.name} could not be started: {error}{logs}",
                hint="`build.py doctor` checks this machine",
            ) from error
        raise


def _describe(
    client: docker.DockerClient,
    known: state.ClusterState,
    *,
    changed: bool = False,
    waits_for: Callable[[str], None] = lambda text: None,
) -> ClusterStatus:
    waits_for(f"{known.engine}'s list of the containers of cluster {known.name}")
    shown = tuple(
        ContainerStatus(
            container.name or "",
            cast(Role, container.labels.get(LABEL_ROLE)),
            container.status,
            container.attrs["Config"]["Image"],
        )
        for container in containers.find(client, known.name)
    )
    there = {one.name for one in shown}
    shown += tuple(
        ContainerStatus(container_name(known.name, host), made["role"], "gone", str(made["image"]))
        for host, made in sorted(known.containers.items())
        if container_name(known.name, host) not in there
    )
    alive = any(one.role == "controller" and one.state == "running" for one in shown)
    waits_for("Slurm's list of nodes (sinfo on the controller)")
    return ClusterStatus(
        known.name,
        known.variant,
        known.release,
        known.engine,
        known.ssh_port,
        secrets.ssh_key(state.folder(known.name) / "secrets"),
        Path(known.volume),
        shown,
        containers.nodes(client, known.name) if alive else (),
        known.rest_urls,
        changed,
        ssh_keys.host_key_fingerprint(state.folder(known.name) / "secrets"),
    )
