# SPDX-License-Identifier: Apache-2.0
"""Plans and runs `build.py cluster rotate`: which secrets of a cluster are replaced, and in what order.

Before a secret is changed, a record in the cluster's folder says so (facts/rotation_record.py). After an
interruption, kill -9 included, the same command finishes the rotation, and so does `up`. steps.py replaces
each secret, and slurm_auth_key.py the key of auth/slurm.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast, get_args

import docker

from cellblock.cluster.definition.names import Auth, name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.api import connect
from cellblock.cluster.facts import rotation_record, state
from cellblock.cluster.facts.rotation_record import RotationRecord, Secret
from cellblock.cluster.facts.upgrade_record import refuse_under_way
from cellblock.cluster.rotating.steps import RotationSteps
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events

ALL = "all"
EFFECTS: Mapping[Secret, str] = {
    "tokens": "slurmdbd and slurmctld start anew: tokens of before are refused, jobs go on",
    "database": "database and slurmdbd start anew: sacct waits for some seconds, jobs go on",
    "logins": "the old key opens no session on the login node any more: sessions and jobs go on",
    "hosts": "the login node starts anew: its sessions end, clients must learn its new keys, jobs go on",
    "munge": "nodes wait for their jobs; then all daemons start anew: sessions end, queued jobs stay",
    "slurm": "slurmdbd starts anew, the other daemons read the key again: jobs and sessions go on",
}
"""What is noticed when each secret is rotated, in the order in which `all` rotates them."""
_DAEMONS_KEYS = get_args(Auth)


@dataclass(frozen=True)
class RotationPlan:
    """The secrets that would be rotated, and those of `all` that the cluster has not, with the reason."""

    name: str
    secrets: tuple[Secret, ...]
    passed_over: Mapping[Secret, str]
    goes_on: bool
    """Whether a rotation was interrupted before."""


@dataclass(frozen=True)
class RotationDone:
    """Secrets that were rotated. `ssh_port` is the login node's on 127.0.0.1."""

    name: str
    secrets: tuple[Secret, ...]
    ssh_port: int
    ssh_key: str
    seconds: float


def plan(name: str, asked: Sequence[str]) -> RotationPlan:
    """What `rotate` would do. Nothing is changed.

    Raises UsageError for a secret that there is not, CellblockError when the cluster does not run or has no
    such secret.
    """
    wanted = _wanted(asked)
    known = state.require(name)
    if ALL in asked:
        # Daemons have one of the two.
        wanted = tuple(one for one in wanted if one not in _DAEMONS_KEYS or one == known.auth)
    lacking = {one: lack for one in wanted if (lack := _lack(known, one)) is not None}
    if ALL not in asked and lacking:
        raise next(iter(lacking.values()))
    secrets = tuple(one for one in wanted if one not in lacking)
    record = rotation_record.read(name)
    if record is not None:
        # What is left comes first: an interrupted one is not to wait for another.
        same = set(record.asked) == set(secrets)
        secrets = record.left if same else tuple(dict.fromkeys((*record.left, *secrets)))
    return RotationPlan(
        name, secrets, {one: lack.message for one, lack in lacking.items()}, record is not None
    )


def rotate(name: str, asked: Sequence[str], events: Events, *, patience_s: float = 600.0) -> RotationDone:
    """Give cluster `name` new secrets of the kinds `asked`; what the old ones opened is closed afterwards.

    Interrupted at whatever moment, the same call goes on. For munge's key, nodes wait for their jobs for
    `patience_s` seconds at most; 0 ends them.

    Raises as `plan`; CellblockError when jobs do not end in time or a daemon does not come up.
    """
    started = time.monotonic()
    state.require(name)
    with state.locked(name):
        todo = plan(name, asked)
        known = state.require(name)
        refuse_under_way(name, "its secrets stay until that is over")
        record = rotation_record.read(name)
        with connect(known.engine) as client:
            _refuse_missing(client, known, goes_on=record is not None)
            if record is None or record.left != todo.secrets:
                phase = record.phase if record else "waiting"
                record = RotationRecord(name, todo.secrets, todo.secrets, phase)
            steps = RotationSteps(client, known, record, patience_s, events)
            while steps.record.left:
                steps.rotate_first()
    return RotationDone(
        name,
        todo.secrets,
        known.ssh_port,
        str(state.folder(name) / "secrets" / "ssh" / "id_ed25519"),
        time.monotonic() - started,
    )


def end_interrupted(client: docker.DockerClient, known: state.ClusterState | None, events: Events) -> None:
    """End what a rotation of the cluster `known` had begun, for `up`, which holds the cluster's lock.

    What it had not begun is not rotated, and a warning says so. Raises as `rotate`.
    """
    record = rotation_record.read(known.name) if known else None
    if known is None or record is None:
        return
    steps = RotationSteps(client, known, record, 0.0, events)
    if record.phase == "waiting":
        steps.give_back()
    else:
        if containers.alive(client, known.name):
            steps.rotate_first()
        else:
            steps.make_first()
        events.info(f"cluster: the rotation of {record.left[0]}, which was interrupted, is over")
    left = steps.record.left
    rotation_record.remove(known.name)
    if left:
        events.warning(
            f"cluster {known.name}: a rotation was interrupted before it came to {', '.join(left)}; "
            f"`build.py cluster rotate {' '.join(left)}{name_option(known.name)}` does it"
        )


def _wanted(asked: Sequence[str]) -> tuple[Secret, ...]:
    known = get_args(Secret)
    for one in asked:
        if one not in (*known, ALL):
            raise UsageError(
                f"there is no secret '{one}'",
                hint=f"use one or more of: {', '.join(known)}; or {ALL}",
            )
    if not asked:
        raise UsageError("no secret is named", hint=f"name one or more of: {', '.join(known)}; or {ALL}")
    return tuple(cast(Secret, one) for one in known if one in asked or ALL in asked)


def _lack(known: state.ClusterState, secret: Secret) -> CellblockError | None:
    """Why the cluster has no such secret of its own; None when it has."""
    option = name_option(known.name)
    if secret == "tokens" and not known.rest_ports:
        return CellblockError(
            f"cluster {known.name} has no REST API, and so no key of tokens",
            hint=f"write `rest: {{}}` in its cluster file; then `build.py up --cluster FILE{option}`",
        )
    if secret in _DAEMONS_KEYS and secret != known.auth:
        return CellblockError(
            f"cluster {known.name} has `auth: {known.auth}`, and so no key of {secret}'s",
            hint=f"`build.py cluster rotate {known.auth}{option}` makes the key of its daemons anew",
        )
    if secret == "database" and "accounting" not in known.containers:
        return CellblockError(
            f"cluster {known.name} has no accounting, and so no password of a database",
            hint=f"rotate others, as in `build.py cluster rotate logins{option}`",
        )
    if secret == "database" and "database" not in known.containers:
        # Of the file as it was kept: another Cellblock's may be no file of this one's.
        database = (known.file.get("accounting") or {}).get("database")
        kept = database.get("password_from") if isinstance(database, dict) else None
        file = kept or "the file that accounting.database.password_from names"
        return CellblockError(
            f"cluster {known.name} uses a database of the site's, whose password is the site's: {file}",
            hint="give the database's user a new password there, write it to that file, then "
            f"`build.py up --cluster FILE{option}`: slurmdbd starts anew with it",
        )
    return None


def _refuse_missing(client: docker.DockerClient, known: state.ClusterState, *, goes_on: bool) -> None:
    """Raise CellblockError when a container is gone; or has ended, unless an interrupted rotation did it."""
    there = containers.alive(client, known.name)
    if goes_on and there:
        there = set(containers.by_host(client, known.name))
    missing = sorted(set(known.containers) - there)
    if missing:
        raise CellblockError(
            f"cluster {known.name}: {', '.join(missing)} does not run, and would not get the new secrets",
            hint=f"{state.same_up(known.name)} starts what is missing",
        )
