"""Fill a jail volume from an image: all of it or nothing, and nothing when there is nothing to do.

What a crash leaves: a staging folder, which the next run removes. Who may run at once: one writer a
volume, held by `Volume.lock`; readers and jobs see either no root or a whole one.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.events import Events, Progress, State, SubjectState
from cellblock.jail import manifest, tree
from cellblock.jail.entry import Entry
from cellblock.jail.source import DirectorySource, Opened, Source, SourceIdentity, find_source, release
from cellblock.jail.volume import Volume, VolumeState
from cellblock.jail.writer import TreeWriter, with_digests

DEFAULT_JOBS = 8
"""More than there are cores: on a shared filesystem a thread spends its time waiting for the server."""

_ROOT_MODE = 0o755
_MANIFEST_LINE = 200
"""Bytes of a manifest's line, generously, for the estimate of the space that is needed."""

NOTE = "mounted-image"
"""File of a staging folder that names the image that its writer had mounted."""


@dataclass(frozen=True)
class AssembleResult:
    """What `assemble` found or did. `bytes` is the sum of the files' sizes."""

    root: Path
    source: SourceIdentity
    changed: bool
    entries: int
    bytes: int
    seconds: float


class OtherSourceError(CellblockError):
    """The volume was assembled from another source; nothing was changed."""


def assemble(source: str, volume: Path, events: Events, *, jobs: int = DEFAULT_JOBS) -> AssembleResult:
    """Write the root filesystem of `source` (see `source`) to `volume`/root.

    With the source that is there already, changes nothing. Raises OtherSourceError when another source
    is there, CellblockError: another writer is at work, the space does not suffice, the source cannot
    be read or the volume cannot hold it. The volume is then as it was before.
    """
    started = time.monotonic()
    if os.geteuid() != 0:
        raise CellblockError(
            "a jail keeps the owners of its files, which only root can set", hint="run this as root (sudo)"
        )
    target, origin = Volume(volume.absolute()), find_source(source)
    if isinstance(origin, DirectorySource) and target.path.resolve().is_relative_to(origin.path.resolve()):
        raise CellblockError(f"the volume {volume} lies inside its source {source}")
    state = target.state()
    identity = origin.identify(state.source if state else None)
    if state:
        return _unchanged(target, state, identity, started)

    with _explained(target):
        target.prepare()
        with target.lock(f"jail assemble {source} {volume}"):
            state = target.state()
            if state:  # another writer finished between the look above and the lock
                return _unchanged(target, state, identity, started)
            _remove_leftovers(target, events)
            events.emit(SubjectState(target.path.name, "running"))
            try:
                state = _fill(target, origin, identity, events, jobs)
            except BaseException as error:
                seconds = time.monotonic() - started
                ended: State = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
                events.emit(SubjectState(target.path.name, ended, seconds=seconds))
                raise
    seconds = time.monotonic() - started
    events.emit(SubjectState(target.path.name, "done", seconds=seconds))
    return AssembleResult(target.root, identity, True, state.entries, state.bytes, seconds)


def _unchanged(
    target: Volume, state: VolumeState, identity: SourceIdentity, started: float
) -> AssembleResult:
    """The result for a volume that is assembled already; an error if it was from another source."""
    if state.source.id != identity.id:
        raise OtherSourceError(
            f"{target.path} holds {state.source}, not {identity}; nothing was changed",
            hint="assemble into another volume: this one's users may have work in it",
        )
    seconds = time.monotonic() - started
    return AssembleResult(target.root, identity, False, state.entries, state.bytes, seconds)


def _remove_leftovers(target: Volume, events: Events) -> None:
    for leftover in target.leftovers():
        events.info(f"removing what an interrupted run left in {leftover}")
        release(leftover / NOTE)
        shutil.rmtree(os.fsencode(leftover))


def _fill(target: Volume, origin: Source, identity: SourceIdentity, events: Events, jobs: int) -> VolumeState:
    """Write, verify and publish the tree. The caller holds the lock."""
    subject = target.path.name
    with target.staging() as staging:
        root = staging / "root"
        with ExitStack() as reading:
            with events.step(subject, "read the source"):
                opened = reading.enter_context(origin.open(staging / NOTE))
            opened = replace(opened, entries=_with_safe_root(opened.entries))
            total = sum(entry.size for entry in opened.entries if entry.kind == "f")
            _check_space(target, opened)
            with events.step(subject, "write"):
                root.mkdir(mode=0o700)
                writer = TreeWriter(
                    root, opened, jobs, lambda done: events.emit(Progress(subject, done, total))
                )
                writer.write()
        entries = opened.entries
        with events.step(subject, "verify"):
            digest = manifest.write(staging / "manifest", with_digests(entries, writer.digests))
            _verify(target, staging, root)
        with events.step(subject, "flush to disk"):
            assembled_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
            state = VolumeState(identity, digest, len(entries), total, assembled_at)
            target.write_state(state, staging)
            target.publish(staging)
    return state


def _with_safe_root(entries: list[Entry]) -> list[Entry]:
    """The tree with a top directory that is root's alone to write, or the jail's plugin refuses it."""
    if not entries or entries[0].path:
        entries = [Entry(b"", "d", _ROOT_MODE, 0, 0, 0, 0), *entries]
    return [entries[0]._replace(mode=_ROOT_MODE, uid=0, gid=0), *entries[1:]]


def _verify(target: Volume, staging: Path, root: Path) -> None:
    """Compare what the filesystem says it holds with the manifest.

    Not the content: its digest is of the very bytes that were handed to write(2), and syncfs(2) reports
    those that did not reach the disk. Reading them back now would come from memory and prove nothing.
    """
    found = tree.differences(manifest.read(staging / "manifest"), tree.walk(os.fsencode(root)))
    if found:
        raise CellblockError(
            "the volume did not keep what was written to it; it was not assembled:\n  " + "\n  ".join(found),
            hint=f"does the filesystem of {target.path} preserve owners, modes, times and attributes?",
        )


def _check_space(target: Volume, opened: Opened) -> None:
    """Refuse before writing what cannot fit, in bytes and in files."""
    status = os.statvfs(target.path)
    available = status.f_bfree * status.f_frsize  # root may use the reserve too
    inodes = sum(entry.kind != "h" for entry in opened.entries)
    needed = len(opened.entries) * _MANIFEST_LINE + sum(
        -(-entry.size // status.f_frsize) * status.f_frsize for entry in opened.entries if entry.kind in "fd"
    )
    if needed > available:
        needed -= _holes(opened)  # looked up only now: it takes another pass
    if needed > available:
        raise CellblockError(
            f"{target.path} has {available / 1e6:.1f} MB free, and the jail needs {needed / 1e6:.1f} MB; "
            "nothing was written",
            hint="free some space or use a larger volume",
        )
    if status.f_files and inodes > status.f_ffree:
        raise CellblockError(
            f"{target.path} has room for {status.f_ffree} more files, and the jail has {inodes}; "
            "nothing was written",
            hint="make the volume's filesystem with more inodes",
        )


def _holes(opened: Opened) -> int:
    """Bytes of the source's sparse files that take no space."""
    if opened.archive:
        return opened.archive.holes
    holes = 0
    for entry in opened.entries:
        if entry.kind == "f" and opened.directory:
            holes += max(0, entry.size - os.lstat(opened.directory + b"/" + entry.path).st_blocks * 512)
    return holes


@contextmanager
def _explained(target: Volume) -> Iterator[None]:
    """Turn the errors of the filesystem into one that says what happened and that nothing was lost."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CellblockError(
                f"{target.path} is full; what had been written was removed, the volume is as it was",
                hint="free some space or use a larger volume, then run this again",
            ) from error
        where = os.fsdecode(error.filename) if error.filename else str(target.path)
        raise CellblockError(f"cannot assemble {target.path}: {where}: {error.strerror or error}") from error
