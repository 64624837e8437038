# SPDX-License-Identifier: Apache-2.0
"""Backs up and restores what Slurm remembers of a running cluster: slurmctld's state and the accounting.

A backup is one tar file:

    state/...            the folder of slurmctld's state (StateSaveLocation, slurm.conf(5)): jobs, nodes, ...
    database.sql.zst     what mariadb-dump prints, in one transaction; of a cluster with accounting
    backup.json          last: which cluster, which release, when, and each file's SHA-256

The state is read first, so that the database knows every job that the state has. Backups of the jail are in
cellblock.jail.backup. Secrets are not backed up: they are made anew with the cluster.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

import docker
import zstandard

from cellblock.cluster.changing.many_jobs import requeue_each
from cellblock.cluster.changing.readiness import wait_ready
from cellblock.cluster.database import dump, load
from cellblock.cluster.definition.names import CONTROLLERS, name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.api import connect
from cellblock.cluster.facts import state
from cellblock.cluster.facts.upgrade_record import refuse_under_way
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events
from cellblock.files import durable
from cellblock.files.sha256 import sha256_of

_FORMAT = 1
_MANIFEST = "backup.json"
DATABASE = "database.sql.zst"
_STATE = "state"
# States of jobs whose processes a restore would forget: squeue(1).
_BUSY = "RUNNING,COMPLETING,CONFIGURING,SUSPENDED,STOPPED,STAGE_OUT,SIGNALING"
_CHUNK = 1 << 20
# slurmctld writes changes down within 5 s (SAVE_MAX_WAIT in its state_save.c), and not when nothing changes.
# One of ours does it at once where that is quick (docs/decisions/slurmctld-saves.md): with few jobs it is.
_WRITES_S, _WRITES_FEW_S = 6.0, 1.0
_FEW_BYTES = 1 << 20
_POLL_S = 0.1


@dataclass(frozen=True)
class Backup:
    """What a backup says of itself. `files` maps each file's name in it to its SHA-256, in hexadecimal."""

    cluster: str
    variant: str
    release: str
    taken: str
    """Time in UTC, RFC 3339."""
    files: dict[str, str]
    format: int = _FORMAT


def back_up(name: str, file: Path, events: Events) -> Backup:
    """Write a backup of the cluster `name`, which runs and goes on, to the new `file`.

    Raises UsageError when there is such a file; CellblockError when the cluster does not run, or its database
    or the disk fails: then there is no file.
    """
    if file.exists():
        raise UsageError(f"{file} exists already", hint="name a new one")
    if not file.absolute().parent.is_dir():
        raise UsageError(
            f"{file}: there is no folder {file.absolute().parent}", hint="make it, or name another"
        )
    known = state.require(name)
    with state.locked(name):
        return write_backup(known, file, events)


def write_backup(known: state.ClusterState, file: Path, events: Events) -> Backup:
    """`back_up`, for those who hold the cluster's lock and have chosen a new `file`."""
    with events.step("cluster", f"back up to {file}"), _fails_as(f"{file}: the backup could not be written"):
        new = Path(tempfile.mkdtemp(prefix=f".{file.name}.", dir=file.absolute().parent))
        try:
            made = _write(known, new / "tar", new / "database")
            durable.flush(new / "tar")
            # Not a rename: another may have made one meanwhile.
            file.hardlink_to(new / "tar")
            durable.sync_directory(file.absolute().parent)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return made


def _write(known: state.ClusterState, target: Path, scratch: Path) -> Backup:
    files: dict[str, str] = {}
    with tarfile.open(target, "x", format=tarfile.PAX_FORMAT) as archive:
        target.chmod(0o600)
        place = state.folder(known.name) / "slurmctld"
        _wait_until_written(place)
        for path in sorted(place.rglob("*")):
            _add(archive, path, f"{_STATE}/{path.relative_to(place)}", files)
        if "accounting" in known.containers:
            dump(known, scratch)
            _add(archive, scratch, DATABASE, files)
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        made = Backup(known.name, known.variant, known.release, now, files)
        text = json.dumps(asdict(made), indent=2).encode()
        entry = tarfile.TarInfo(_MANIFEST)
        entry.size, entry.mode, entry.mtime = len(text), 0o600, int(time.time())
        archive.addfile(entry, io.BytesIO(text))
    return made


def _wait_until_written(place: Path) -> None:
    """Wait until what slurmctld knows now is in its files."""
    now = time.time()
    at_once = (place / "ended-jobs").exists()
    longest = _WRITES_S
    while time.time() - now < longest:
        try:
            found = (place / "job_state").stat()
            if found.st_mtime > now:
                return
            longest = _WRITES_FEW_S if at_once and found.st_size < _FEW_BYTES else _WRITES_S
        except FileNotFoundError:
            pass  # between two renames, or no job was there yet
        time.sleep(_POLL_S)


def _add(archive: tarfile.TarFile, path: Path, name: str, files: dict[str, str]) -> None:
    """Add a file; what slurmctld has replaced or removed meanwhile is none of a backup's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return
    with os.fdopen(descriptor, "rb") as file:
        reader = _Hashed(file)
        archive.addfile(archive.gettarinfo(arcname=name, fileobj=file), reader)
        files[name] = reader.hash.hexdigest()


class _Hashed:
    """A file that is read once, and the SHA-256 of what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.hash.update(data)
        return data


def restore(name: str, file: Path, events: Events) -> Path:
    """Give the cluster `name`, which runs without jobs, what the backup `file` holds.

    slurmctld and slurmdbd are away meanwhile; nodes and sessions stay. What is interrupted is done by the
    same call again. Returns a backup of what the cluster had. Raises UsageError when the backup is another
    cluster's, or jobs run; CellblockError when `file` is no whole backup or the database fails.
    """
    if not file.is_file():
        what = "is no file" if file.exists() else "there is no file of that name"
        raise UsageError(
            f"{file}: {what}",
            hint=f"name one that `build.py cluster backup FILE{name_option(name)}` has made",
        )
    with _fails_as(f"{file}: the backup could not be restored"), tarfile.open(file, "r:") as archive:
        found = check_backup(archive, file)
        known = state.require(name)
        with state.locked(name), connect(known.engine) as client:
            refuse_under_way(name, "a backup cannot be restored meanwhile")
            _refuse_other(known, found, file)
            refuse_busy(client, name, "a restore")
            place = state.folder(name)
            before = place / f"before-restore-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.tar"
            write_backup(known, before, events)
            with events.step("cluster", f"restore {file}"):
                hosts = (*reversed(CONTROLLERS), "accounting")
                daemons = [host for host in hosts if host in known.containers]
                for host in daemons:
                    containers.stop_one(client, name, host)
                try:
                    if "accounting" in known.containers:
                        with member(archive, DATABASE) as packed:
                            load(known, packed)
                    replace_state(archive, found, place)
                finally:
                    for host in reversed(daemons):
                        containers.start_one(client, name, host)
                wait_ready(client, known)
                end_lost(client, name, events)
    return before


def check_backup(archive: tarfile.TarFile, file: Path) -> Backup:
    """What a backup says of itself, when it is whole."""
    again = "it is no whole backup; take another"
    try:
        text = member(archive, _MANIFEST).read(_CHUNK * 64)
        found = Backup(**json.loads(text))
        if found.format != _FORMAT:
            raise UsageError(
                f"{file}: is a backup of format {found.format}, and this Cellblock reads {_FORMAT}",
                hint="use the Cellblock that made it, or a newer one",
            )
        for name, digest in found.files.items():
            if {"", ".."} & set(name.split("/")) or not (name == DATABASE or name.startswith(f"{_STATE}/")):
                raise CellblockError(f"{file}: names a file that no backup has: {name}", hint=again)
            if sha256_of(member(archive, name)) != digest:
                raise CellblockError(f"{file}: {name} is not what was backed up", hint=again)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CellblockError(f"{file}: is no backup of a cluster: {error}", hint=again) from error
    return found


def member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """What a backup holds by that name. Raises KeyError, and ValueError for what is no file."""
    found = archive.extractfile(name)
    if found is None:
        raise ValueError(f"{name} is no regular file")
    return found


def _refuse_other(known: state.ClusterState, found: Backup, file: Path) -> None:
    """Raise UsageError when the backup is not of this cluster, as Slurm sees it."""
    if found.cluster != known.name:
        raise UsageError(
            f"{file}: is a backup of cluster {found.cluster}, whose records have its name",
            hint=f"restore it to a cluster of that name: `build.py up{name_option(found.cluster)}`",
        )
    if found.release != known.release:
        raise UsageError(
            f"{file}: is of Slurm {found.release}, and cluster {known.name} runs {known.release}",
            hint=f"`build.py cluster upgrade --back{name_option(known.name)}` undoes an upgrade; else "
            f"start the cluster with `--variant {found.variant}`, in an own CELLBLOCK_STATE",
        )
    if ("accounting" in known.containers) != (DATABASE in found.files):
        have, has = ("has", "has none") if DATABASE in found.files else ("has none", "has")
        raise UsageError(
            f"{file}: {have} a database of the accounting, and cluster {known.name} {has}",
            hint="start the cluster with the same `accounting` in its file",
        )


def _busy(client: docker.DockerClient, name: str) -> list[str]:
    """The jobs that have nodes, by number; those of an array each by its own."""
    command = ["squeue", "--all", "--noheader", "--format=%A", f"--states={_BUSY}"]
    return containers.execute(client, name, "controller", command).split()


def refuse_busy(client: docker.DockerClient, name: str, what: str) -> None:
    """Raise UsageError while jobs run: slurmctld would end those that it does not know after `what`."""
    jobs = _busy(client, name)
    if jobs:
        some = ", ".join(jobs[:5]) + (", ..." if len(jobs) > 5 else "")
        raise UsageError(
            f"cluster {name} runs {len(jobs)} jobs ({some}): {what} would end those that the backup does "
            "not know",
            hint=f"wait for them, or end them: `build.py shell --admin{name_option(name)} scancel {jobs[0]}`",
        )


def end_lost(client: docker.DockerClient, name: str, events: Events) -> None:
    """Queue jobs again, or end them, that ran when the backup was made: their processes are gone."""
    jobs = _busy(client, name)
    ended = requeue_each(client, name, jobs)
    for job in jobs:
        what = "is cancelled: it cannot be queued again" if job in ended else "is queued again"
        events.warning(f"job {job} ran when the backup was made, and {what}")


def replace_state(archive: tarfile.TarFile, found: Backup, place: Path) -> None:
    """Put slurmctld's files in the place of those that are there, which go last."""
    state_folder, new, old = place / "slurmctld", place / "slurmctld.new", place / "slurmctld.old"
    for folder in (new, old):
        shutil.rmtree(folder, ignore_errors=True)
    owner = state_folder.stat()
    _make(new, owner)
    for name in found.files:
        if not name.startswith(f"{_STATE}/"):
            continue
        target = new / name.removeprefix(f"{_STATE}/")
        for parent in reversed(target.relative_to(new).parents[:-1]):
            _make(new / parent, owner)
        with target.open("xb") as file:
            shutil.copyfileobj(member(archive, name), file)
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fchmod(file.fileno(), archive.getmember(name).mode & 0o700)
            file.flush()
            os.fsync(file.fileno())
    for place_of_files, _, _ in os.walk(new):
        durable.sync_directory(Path(place_of_files))
    state_folder.rename(old)
    new.rename(state_folder)
    durable.sync_directory(place)
    shutil.rmtree(old)


def _make(folder: Path, owner: os.stat_result) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=stat.S_IMODE(owner.st_mode))
        os.chown(folder, owner.st_uid, owner.st_gid)


@contextmanager
def _fails_as(what: str) -> Iterator[None]:
    """Errors of the disk and of the archive as one that says what failed."""
    try:
        yield
    except (OSError, tarfile.TarError, zstandard.ZstdError) as error:
        raise CellblockError(
            f"{what}: {error}", hint="see that the file is whole and the disk has space, then try again"
        ) from error
