# SPDX-License-Identifier: Apache-2.0
"""Records a cluster on this machine, in the folder paths.state()/clusters/NAME.

    state.json       written last, by rename, when the cluster runs; removed first by `stop`
    config/          rendered configuration, mounted read-only into the containers
    secrets/         the munge key and SSH keys; mode 0700
    slurmctld/       slurmctld's own state
    accounts/        with a REST API, the checked copy of the jail's accounts
    database/        MariaDB's, when the accounting's database is embedded
    archive/         records that slurmdbd has taken out of the database, and dumps from before conversions
    before-*.tar     backups made before an upgrade, a downgrade or a restore
    database-of-*    a newer database that a downgrade has put aside
    rotation.json    how far a rotation of secrets is, while it is unfinished
    upgrade.json     how far an upgrade to a newer Slurm is, and what a downgrade needs

The lock of `up`, paths.state()/locks/NAME.up, stays when the cluster goes: another `up` may wait for it.
A crash between making a container and writing state.json leaves containers without a state: `start`
and `stop` find them by their label and remove them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cellblock import paths
from cellblock.cluster.definition.model import EngineName
from cellblock.cluster.definition.names import Auth, check_name, name_option
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.files import durable, flock

_FILE = "state.json"
ROTATION = "rotation.json"
"""The file of cellblock.cluster.facts.rotation_record; it goes with the secrets."""


@dataclass(frozen=True)
class ClusterState:
    """A cluster that was started.

    `nodes` are all of Slurm's, `default_nodes` those of the default partition. `containers` maps host names
    to what each was made from (cellblock.cluster.changing.changes.record).
    """

    name: str
    variant: str
    release: str
    engine: EngineName
    nodes: list[str]
    default_nodes: list[str]
    ssh_port: int
    volume: str
    containers: dict[str, dict[str, Any]] = field(default_factory=dict)
    file: dict[str, Any] = field(default_factory=dict)
    """The cluster file that it is made from, with what options said; empty of an earlier Cellblock's."""
    options: dict[str, list[str]] | None = None
    """Options of the last `up` -> their values, without --name and --wait; None of an earlier Cellblock's."""

    @property
    def auth(self) -> Auth:
        """What says to Slurm who asks."""
        return "slurm" if self.file.get("auth") == "slurm" else "munge"

    @property
    def mirrors(self) -> tuple[str, ...]:
        """Archives that the last `up` was given."""
        return tuple((self.options or {}).get("--mirror", ()))

    @property
    def rest_ports(self) -> dict[str, int]:
        """Host of slurmrestd -> its port on 127.0.0.1."""
        return {host: one["rest_port"] for host, one in self.containers.items() if one.get("rest_port")}

    @property
    def rest_urls(self) -> tuple[str, ...]:
        """Where slurmrestd is reached."""
        return tuple(f"http://127.0.0.1:{port}" for port in self.rest_ports.values())


def folder(name: str) -> Path:
    """Where everything of cluster `name` is kept; not created here.

    Raises UsageError for what is no cluster's name: "" or ".." would be somebody else's folder.
    """
    check_name(name)
    return paths.state() / "clusters" / name


def read(name: str) -> ClusterState | None:
    """The state of cluster `name`, or None when there is no such cluster.

    Raises CellblockError when the file cannot be understood.
    """
    path = folder(name) / _FILE
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        # What an earlier version wrote besides counts for nothing.
        return ClusterState(**{one.name: kept[one.name] for one in fields(ClusterState) if one.name in kept})
    except FileNotFoundError:
        return None
    except (NotADirectoryError, PermissionError) as error:
        raise CellblockError(
            f"{path}: {error.strerror}",
            hint="run as root, or set CELLBLOCK_STATE to a folder that can be read and written",
        ) from error
    except TypeError as error:  # a field more, or one less
        raise CellblockError(
            f"{path}: was written by another version of Cellblock",
            hint=f"use the checkout that started it; or end it: `build.py down{name_option(name)}`",
        ) from error
    except (ValueError, OSError) as error:
        raise CellblockError(
            f"{path}: cannot be read as the state of a cluster: {error}",
            hint=f"`build.py down{name_option(name)}` removes the cluster",
        ) from error


def acting_controller(name: str) -> str:
    """The host whose slurmctld acts for cluster `name`; empty while none has acted."""
    try:
        return (folder(name) / "slurmctld" / "acting-controller").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def is_recorded(name: str) -> bool:
    """Whether cluster `name` was started and not stopped, as far as there is a record, readable or not."""
    return (folder(name) / _FILE).exists()


def names() -> list[str]:
    """The clusters that this machine keeps something of, running or not; as far as this user may see them."""
    try:
        return listed()
    except OSError:
        return []


def listed() -> list[str]:
    """As `names`. Raises OSError where the folder cannot be read."""
    try:
        return sorted(place.name for place in (paths.state() / "clusters").iterdir() if place.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def name_by_port(port: int) -> str | None:
    """The cluster whose login node or REST API has `port`; records that cannot be read are passed over."""
    for name in names():
        with contextlib.suppress(CellblockError):
            known = read(name)
            if known and port in (known.ssh_port, *known.rest_ports.values()):
                return name
    return None


def no_such_cluster(name: str, next_step: str) -> CellblockError:
    """The error for a cluster that is not there: it names those that are."""
    others = [other for other in names() if other != name]
    there = f"; clusters of this machine: {', '.join(others)}" if others else ""
    return CellblockError(f"there is no cluster {name}{there}", hint=next_step)


def require(name: str) -> ClusterState:
    """The state of cluster `name`. Raises CellblockError when there is no such cluster, or it is stopped."""
    known = read(name)
    if known is None:
        start = f"start it: `build.py up{name_option(name)}`"
        if folder(name).is_dir():
            raise CellblockError(f"cluster {name} is stopped; what is in its jail is kept", hint=start)
        raise no_such_cluster(name, start)
    return known


def same_up(name: str, *more: str) -> str:
    """The command of the last `up` of cluster `name`, with `more` behind it, as a hint begins with it."""
    try:
        known = read(name)
    except CellblockError:
        known = None
    return up_command(name, known.options if known else None, *more)


def up_command(name: str, options: Mapping[str, Sequence[str]] | None, *more: str) -> str:
    """`build.py up` with these options; where nobody knows them, the text says that there may be some."""
    words = [word for option, values in (options or {}).items() for each in values for word in (option, each)]
    typed = f"`build.py up{name_option(name)}{''.join(f' {shlex.quote(word)}' for word in (*words, *more))}`"
    return typed if options is not None else f"{typed}, with its other options,"


def write(state: ClusterState) -> None:
    """Record `state`: after a crash there is the old file or the new one."""
    path = folder(state.name) / _FILE
    durable.write(path, json.dumps(asdict(state), indent=2), mode=0o644)


def forget(name: str) -> None:
    """Remove what is kept of cluster `name` for the time it runs, its secrets included.

    Slurm's state and the database stay, as the jail does: jobs that wait, and what jobs used.
    """
    place = folder(name)
    (place / _FILE).unlink(missing_ok=True)
    for part in ("config", "secrets", "accounts"):
        shutil.rmtree(place / part, ignore_errors=True)
    # After the secrets: until they are gone, it says that they may not fit each other.
    (place / ROTATION).unlink(missing_ok=True)
    # What others put there (a volume) stays, and so does the folder then. The lock file stays while
    # it is held: a second process may wait on it.


@contextmanager
def exclusive_up(name: str, events: Events) -> Iterator[None]:
    """Hold the lock of `up` of cluster `name`, from before its first image is built; waits for another `up`.

    Raises CellblockError when the file of the lock cannot be made.
    """
    check_name(name)

    def waiting() -> None:
        events.info(
            f"another `up` of cluster {name} is at work: waiting for it to end (Ctrl-C gives up the wait)"
        )

    # Not in the cluster's folder, which an `up` that fails deletes while another waits for it.
    path = _lock_of_up(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        lock = path.open("a")
    except OSError as error:
        raise _unwritable(path, error) from error
    with lock:
        flock.take(lock, path, waiting=waiting)
        yield


def refuse_during_up(name: str, what: str) -> None:
    """Raise CellblockError while an `up` of cluster `name` is at work, which `what` would cross."""
    check_name(name)
    try:
        lock = _lock_of_up(name).open()
    except OSError:
        return  # there was none yet
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CellblockError(
                f"`up` of cluster {name} is at work: {what}",
                hint="wait for it, or stop it with Ctrl-C where it runs; then try again",
            ) from error


def _lock_of_up(name: str) -> Path:
    return paths.state() / "locks" / f"{name}.up"


def _unwritable(place: Path, error: OSError) -> CellblockError:
    return CellblockError(
        f"{place}: cannot be written: {error.strerror}",
        hint="run as root, or set CELLBLOCK_STATE to a folder that can be written",
    )


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cluster's lock: one `start`, `stop` or the other at a time.

    Raises CellblockError when another process holds it, or the folder cannot be made.
    """
    place = folder(name)
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o755)
        lock = (place / "lock").open("w")
    except OSError as error:
        raise _unwritable(place, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CellblockError(
                f"another process is starting or stopping cluster {name}", hint="wait for it, then try again"
            ) from error
        yield
