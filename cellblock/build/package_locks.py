# SPDX-License-Identifier: Apache-2.0
"""Makes, checks and compares the locks of variants, for `build.py lock`.

cellblock/lock/ resolves packages and reads and writes the files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cellblock import paths
from cellblock.build.extra_archives import extra_archives, of_images, resolve_with
from cellblock.build.mirrors import Archive, package_archives
from cellblock.build.rendering import lock_requests, render_images
from cellblock.errors import DefinitionError
from cellblock.events import Events
from cellblock.lock.diff import LockDiff, diff
from cellblock.lock.file import lock_path, read_lock, write_lock
from cellblock.lock.model import Lock
from cellblock.project import Project
from cellblock.variants import Variant


@dataclass(frozen=True)
class LockRequest:
    """What to lock: a variant (none: the newest stable of the host), from which mirrors and date."""

    variant: str | None = None
    mirrors: tuple[str, ...] = ()
    snapshot: str | None = None
    definitions: Path = field(default_factory=lambda: paths.PROJECT / "images")
    locks: Path | None = None
    """Folder of the locks; without: the project's, or the site's."""
    sites: tuple[Path, ...] = ()
    """Folders of a site's own definitions (`--images`)."""


@dataclass(frozen=True)
class LockResult:
    """A lock as it would be now, where it belongs, and what it changes.

    `changes` is None when there is no lock yet; `damage` says why the one that is there cannot be read.
    """

    variant: Variant
    path: Path
    lock: Lock
    changes: LockDiff | None
    damage: DefinitionError | None = None

    @property
    def is_current(self) -> bool:
        """Whether the lock that is there says what this one says."""
        return self.changes is not None and not self.changes


def compare_lock(request: LockRequest, events: Events, *, as_dated: bool = False) -> LockResult:
    """Resolve anew and compare with the lock that is there; writes nothing.

    `as_dated`: a lock of a snapshot is compared with that snapshot, unless `request` names another
    archive. Raises UsageError, DefinitionError and CellblockError as `resolve` does.
    """
    project = Project(request.definitions, request.sites)
    variant = project.variant(request.variant)
    path = lock_path(request.locks or project.locks, variant)
    requests = lock_requests(render_images(variant, project.all_in_order()))
    there, damage = _lock_there(path)
    snapshot = request.snapshot
    if as_dated and there and there.snapshot and not request.mirrors and not snapshot:
        archives, snapshot = there.archives, there.snapshot
    else:
        archives = package_archives(variant, request.mirrors, snapshot)
    archives = of_images(archives)
    extras = extra_archives(variant, Archive(tuple(each.line for each in archives)), events)
    lock = resolve_with(extras, variant, archives, requests, events, snapshot=snapshot)
    return LockResult(variant, path, lock, diff(there, lock) if there else None, damage)


def _lock_there(path: Path) -> tuple[Lock | None, DefinitionError | None]:
    """The lock at `path`, or why it cannot be read; neither when there is none."""
    if not path.exists():
        return None, None
    try:
        return read_lock(path), None
    except DefinitionError as error:
        return None, error


def make_lock(request: LockRequest, events: Events) -> LockResult:
    """Resolve anew and write the lock; one that is current is left as it is, to the byte."""
    result = compare_lock(request, events)
    if not result.is_current:
        write_lock(result.lock, result.path)
    return result
