# SPDX-License-Identifier: Apache-2.0
"""Fills a jail volume from an image: completely, or not at all.

Nothing is written when the volume holds that image already. The C code behind `image_core` reads the source
once and writes into a staging folder, which is then renamed. A killed run leaves that folder: the same
command continues with it and does not write complete files again. After an error the folder is removed.
Only one writer runs at a time (`Volume.lock`), or the shards of one source (`shards`). Jobs see no root or
a complete one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.events import Events, Progress, State, SubjectState
from cellblock.jail.source.directory import DirectorySource
from cellblock.jail.source.find import find_source
from cellblock.jail.source.identity import Source, SourceIdentity
from cellblock.jail.source.image import NOTE, release
from cellblock.jail.source.image_core import Assembly, ImageError, Summary, Target, assembling
from cellblock.jail.source.known_digests import records_folder
from cellblock.jail.source.listings import LayerListings
from cellblock.jail.source.stream import SourceStream
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.tree.unsupported import Loss
from cellblock.jail.tree.unsupported import write as write_losses
from cellblock.jail.volume import filesystem_capabilities
from cellblock.jail.volume.filesystem_capabilities import (
    CONSEQUENCES,
    FilesystemCapabilities,
    warning_text,
)
from cellblock.jail.volume.filesystem_errors import filesystem_errors
from cellblock.jail.volume.shards import Shard, ShardFolder, patient_lock
from cellblock.jail.volume.volume import Volume, VolumeState
from cellblock.jail.volume.writer_lock import LostLockError
from cellblock.paths import JAIL_RELEASE
from cellblock.privilege import require_root

_SLOW_S = 0.0002
"""Seconds a call takes on a filesystem that has to ask a server; local ones take a tenth."""
_SLOW_JOBS = 64
"""There a thread spends its time waiting. On a local disk more threads than processors wait for each other's
directories, spinning: on ext4 from which much was removed just before, four on two took twice the time."""


@dataclass(frozen=True)
class Options:
    """How to assemble: how many threads write (None: as the volume's filesystem needs), which shard of how
    many, and whether to go on where the volume cannot hold something."""

    jobs: int | None = None
    shard: Shard = field(default_factory=Shard)
    allow_lossy: bool = False


@dataclass(frozen=True)
class AssembleResult:
    """What `assemble` found or did. `bytes` is the sum of the files' sizes.

    `waiting` are the shards that have not finished: then the volume is not assembled yet. `losses`: what the
    volume could not hold. `kept`: files that an interrupted run had written.
    """

    root: Path
    source: SourceIdentity
    changed: bool
    entries: int
    bytes: int
    seconds: float
    waiting: tuple[int, ...] = ()
    losses: tuple[Loss, ...] = ()
    kept: int = 0


class OtherSourceError(CellblockError):
    """The volume was assembled from another source; nothing was changed."""


def assemble(
    source: str, volume: Path, events: Events, *, jobs: int | None = None, options: Options | None = None
) -> AssembleResult:
    """Write the root filesystem of `source` (see `source`) to `volume`/root.

    With the source that is there already, changes nothing. Raises OtherSourceError when another source
    is there, CellblockError: another writer is at work, the space does not suffice, the source cannot
    be read or the volume cannot hold it. The volume is then as it was before.
    """
    started = time.monotonic()
    options = options or Options(jobs)
    require_root("a jail keeps the owners of its files, which only root can set")
    target, origin = Volume(volume.absolute()), find_source(source)
    if isinstance(origin, DirectorySource) and target.path.resolve().is_relative_to(origin.path.resolve()):
        raise CellblockError(
            f"the volume {volume} lies inside its source {source}", hint="name a volume outside of the source"
        )
    state = target.state()
    identity = origin.identify(state.source if state else None)
    if state:
        unchanged = _unchanged(target, state, identity, started)
        if not target.leftovers():
            return unchanged
    writing = _Writing(target, origin, identity, events, options, f"jail assemble {source} {volume}", started)
    what = "was removed, the volume is as it was" if options.shard.of == 1 else "stays, and is gone on with"
    with filesystem_errors(target.path, "assemble", when_full=f"what had been written {what}"):
        target.prepare()
        events.emit(SubjectState(target.path.name, "running"))
        try:
            result = writing.alone() if options.shard.of == 1 else writing.part()
        except BaseException as error:
            seconds = time.monotonic() - started
            ended: State = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            events.emit(SubjectState(target.path.name, ended, seconds=seconds))
            raise
    events.emit(SubjectState(target.path.name, "done", seconds=time.monotonic() - started))
    return result


def _unchanged(
    target: Volume, state: VolumeState, identity: SourceIdentity, started: float
) -> AssembleResult:
    """The result for a volume that is assembled already; an error if it was from another source."""
    if state.source.id != identity.id:
        raise OtherSourceError(
            f"{target.path} holds {state.source}, not {identity}; nothing was changed",
            hint=f"`jail upgrade IMAGE {target.path}` brings it to an image; or assemble into another volume",
        )
    seconds = time.monotonic() - started
    return AssembleResult(target.root, identity, False, state.entries, state.bytes, seconds)


@dataclass(frozen=True)
class _Writing:
    """One run of `assemble` that has something to write."""

    target: Volume
    origin: Source
    identity: SourceIdentity
    events: Events
    options: Options
    command: str
    started: float

    @property
    def subject(self) -> str:
        return self.target.path.name

    def alone(self) -> AssembleResult:
        """Write and publish the tree under the volume's lock."""
        with self.target.lock(self.command) as check:
            state = self.target.state()
            if state:
                # Of another writer since the look before the lock, or of one that was killed at its very end.
                unchanged = _unchanged(self.target, state, self.identity, self.started)
                self._remove_others(None, published=True)
                return unchanged
            staging = self.target.private / f"staging-{self.identity.id[-16:]}"
            self._remove_others(staging)
            resume = self._prepare(staging)
            try:
                with self._written(staging, resume, check) as assembly:
                    with self.events.step(self.subject, "set directories' owners and times"):
                        assembly.seal()
                    summary = assembly.write_manifest(_absent(staging / "manifest"))
                    result = self._publish(staging, summary, assembly, assembly.losses(), check)
                self._remove_others(staging, published=True)
                return result
            except (KeyboardInterrupt, LostLockError):
                raise  # as after a kill: what is written stays, for the next run; or it is another's now
            except BaseException:
                check()
                with suppress(OSError):
                    remove_tree(staging)
                raise
            finally:
                _remove_if_published(staging)

    def part(self) -> AssembleResult:
        """Write one shard; whoever finishes last publishes all."""
        shard = self.options.shard
        folder = ShardFolder(self.target.private, self.identity.id, shard.of)
        with patient_lock(self.target, self.command):
            state = self.target.state()
            if state:
                return _unchanged(self.target, state, self.identity, self.started)
            resume = self._prepare(folder.path)
        with (
            folder.only_one(shard) as check,
            self._written(folder.path, resume, check, note=f"{NOTE}-{shard.index}") as assembly,
        ):
            check()
            folder.lost(shard, assembly.losses())
            with folder.finished(shard) as file:
                assembly.write_manifest(file, part=True)
            with patient_lock(self.target, self.command) as check_all:
                state = self.target.state()
                if state:
                    return _unchanged(self.target, state, self.identity, self.started)
                waiting = folder.waiting()
                if waiting:
                    written = assembly.written()
                    seconds = time.monotonic() - self.started
                    return AssembleResult(
                        self.target.root, self.identity, True, written.files, written.bytes, seconds, waiting
                    )
                with self.events.step(self.subject, "join the shards"):
                    assembly.seal()
                    summary = folder.join(_absent(folder.path / "manifest"))
                # What the directories lost, which the last one gave their owners, comes on top.
                folder.lost(shard, assembly.losses())
                result = self._publish(folder.path, summary, assembly, folder.all_lost(), check_all)
        # Not before the files in it are closed: NFS keeps the name of what is open, and so the folder.
        with patient_lock(self.target, self.command):
            with suppress(OSError):  # or somebody has, in between
                remove_tree(folder.path)
            self._remove_others(None, published=True)
        return result

    def _remove_others(self, staging: Path | None, *, published: bool = False) -> None:
        """Remove what killed runs left. Shards hold no lock: theirs is nobody's once there is a tree."""
        for leftover in self.target.leftovers():
            if leftover == staging or (leftover.name.startswith("shards-") and not published):
                continue
            self.events.info(f"removing what an interrupted run left in {leftover}")
            for note in leftover.glob(f"{NOTE}*"):
                release(note)
            with suppress(OSError) if published else nullcontext():
                remove_tree(leftover)

    def _prepare(self, staging: Path) -> bool:
        """Make the folder; whether there was one of an earlier run."""
        root = staging / "root"
        resume = root.exists()
        staging.mkdir(mode=0o700, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
        return resume

    @contextmanager
    def _written(
        self, staging: Path, resume: bool, check: Callable[[], None], note: str = NOTE
    ) -> Iterator[Assembly]:
        """Read the source and write all files; the block does what comes then.

        `check` raises when the folder is another writer's by now: it may even be the tree of jobs.
        """

        def report(read: int) -> None:
            check()
            self.events.emit(Progress(self.subject, read, stream.total))

        capabilities = filesystem_capabilities.probe(staging)
        self._tell_what_lacks(capabilities)
        jobs = self.options.jobs or (
            _SLOW_JOBS if capabilities.latency_s > _SLOW_S else max(2, len(os.sched_getaffinity(0)))
        )
        release(staging / note)
        shard = self.options.shard
        with ExitStack() as reading:
            with self.events.step(self.subject, "find the source"):
                stream = reading.enter_context(self.origin.feed(staging / note))
            if resume:
                self.events.info("going on with what an interrupted run left")
            else:
                filesystem_capabilities.check_space(self.target.path, stream, shard.of)
            root = os.open(staging / "root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            reading.callback(os.close, root)
            goal = Target(root, jobs, resume, self.options.allow_lossy, shard.index, shard.of)
            # A shard hashes only its own files, which is no listing of a layer.
            listings = LayerListings(self.target.layers)
            layers = reading.enter_context(
                listings.joined(stream.layers, keep=shard.of == 1, read=_all_of(stream))
            )
            assembly = reading.enter_context(
                assembling(
                    stream.directory or layers,
                    goal,
                    report,
                    records_folder(),
                )
            )
            with self.events.step(self.subject, "read and write"):
                try:
                    assembly.run()
                except ImageError as error:
                    if stream.errors:
                        raise stream.errors[0] from error
                    raise self._translated(error, capabilities) from error
            if stream.errors:
                raise stream.errors[0]
            check()
            # Of a directory, which nothing keeps as it was, the identity is its listing's.
            if stream.directory and self.origin.identify(None).id != self.identity.id:
                raise CellblockError(
                    f"{stream.directory} changed while it was read; nothing was assembled",
                    hint="run this again when nobody writes to the source",
                )
            self.events.emit(Progress(self.subject, stream.total, stream.total))
            yield assembly

    def _publish(
        self,
        staging: Path,
        summary: Summary,
        assembly: Assembly,
        losses: Sequence[Loss],
        check: Callable[[], None],
    ) -> AssembleResult:
        if summary.entries <= 1:
            raise CellblockError(
                f"{self.identity} has no files; nothing was assembled",
                hint="is it the source that you meant?",
            )
        # A directory or a tar of a user's own is what its user says; a nodes' image of ours is a mistake.
        if self.identity.release and not os.path.lexists(staging / "root" / JAIL_RELEASE):
            raise CellblockError(
                f"{self.identity} is no jail: it has no /{JAIL_RELEASE}, and nodes would refuse it; "
                "nothing was assembled",
                hint="name an image that is a jail: `jail`, or one that is made from it",
            )
        kept = assembly.written().kept
        check()
        with self.events.step(self.subject, "flush to disk"):
            assembled_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
            state = VolumeState(
                self.identity,
                summary.digest,
                summary.entries,
                summary.bytes,
                assembled_at,
                SourceStream(layers=assembly.layers).digests,
            )
            self.target.write_state(state, staging)
            (self.target.private / "losses.json").unlink(missing_ok=True)  # of a tree that is gone
            if losses:
                write_losses(self.target.private / "losses.json", losses)
            self.target.publish(staging, check)
        for loss in losses:
            self.events.warning(warning_text(self.target.path, loss))
        seconds = time.monotonic() - self.started
        return AssembleResult(
            self.target.root,
            self.identity,
            True,
            summary.entries,
            summary.bytes,
            seconds,
            losses=tuple(losses),
            kept=kept,
        )

    def _tell_what_lacks(self, capabilities: FilesystemCapabilities) -> None:
        for what in capabilities.lacks:
            self.events.warning(f"the filesystem of {self.target.path} holds no {what}: {CONSEQUENCES[what]}")

    def _translated(self, error: ImageError, capabilities: FilesystemCapabilities) -> BaseException:
        """The core's error as one that says what the volume is now and what to do."""
        if error.fault == "lossy":
            lacks = "".join(f"\n  no {what}: {CONSEQUENCES[what]}" for what in capabilities.lacks)
            return CellblockError(
                f"{self.target.path} cannot hold the jail: {error}; nothing was assembled"
                + (f"; its filesystem has:{lacks}" if lacks else ""),
                hint=f"use {_BETTER if lacks else _LARGER}; or accept it: --allow-lossy",
            )
        return error.for_users("nothing was assembled")


# Filesystems that have what one lacks, and one where a file may have more of what both have.
_BETTER = "ext4, xfs, btrfs, or NFS 4.2 without squashed root"
_LARGER = "xfs, where a file may have more names than 65,000, and attributes of more than 4 KiB"


def _all_of(stream: SourceStream) -> set[str]:
    """Digests of all layers: an assembly needs their content, which no listing has."""
    return {layer.digest for layer in stream.layers if layer.digest is not None}


def _absent(path: Path) -> Path:
    """The path, without what an earlier run may have left there."""
    path.unlink(missing_ok=True)
    return path


def _remove_if_published(staging: Path) -> None:
    """After `publish` has taken the tree out of it; a killed run's trial files may be left."""
    if staging.exists() and not (staging / "root").exists():
        remove_tree(staging)
