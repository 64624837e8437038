# SPDX-License-Identifier: Apache-2.0
"""Makes temporary root filesystems with compilers, of exactly locked packages, and runs shell lines in them.

Slurm is compiled and stand-ins are packed in them. The packages of a toolchain are resolved once and kept in
the cache, as for images. The key of what it compiles covers all of them by SHA-256. A compiler that the
archive replaces today is not used until `--update` asks for it, or the old one is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cellblock.build.mirrors import Archive
from cellblock.build.working_root import WorkingRoot
from cellblock.cache_key import digest_of
from cellblock.cuda import CudaRepository
from cellblock.engine import apt
from cellblock.engine.recipe import Bootstrap
from cellblock.events import Events
from cellblock.lock.archives import archives_of
from cellblock.lock.default_archives import default_archives
from cellblock.lock.file import read_lock, write_lock
from cellblock.lock.model import Lock
from cellblock.lock.resolve import Request, resolve
from cellblock.packages.repository import write_repository
from cellblock.packages.store import PackageStore
from cellblock.process import Programs
from cellblock.store.work_folders import WorkFolders
from cellblock.variants import Variant

_NAME = "toolchain"


@dataclass(frozen=True)
class LockedToolchain:
    """Toolchain roots of `variant` from `archive`, for `cellblock.slurm`; `cache` is CELLBLOCK_CACHE.

    `cuda` is one more archive, which has been looked at before. `update`: ask the archives anew.
    """

    variant: Variant
    archive: Archive
    cache: Path
    events: Events
    cuda: CudaRepository | None = None
    update: bool = False
    _known: dict[str, Lock] = field(default_factory=dict)

    def key(self, packages: Sequence[str]) -> str:
        """Over the distribution and all packages of a root with `packages`, by SHA-256; not over mirrors.

        Raises what `cellblock.lock.resolve.resolve` raises when they were not resolved before.
        """
        return digest_of([self.variant.distribution.model_dump(), self._lock(packages).packages_digest])

    @contextmanager
    def workshop(self, packages: Sequence[str], on_line: Callable[[str], None]) -> Iterator[WorkingRoot]:
        """A root with `packages`, removed in the end.

        Raises ProgramFailed when one cannot be installed, PackagesGone when no mirror has them any more.
        """
        lock = self._lock(packages)
        store = PackageStore(self.cache / "debs")
        folders = WorkFolders(self.cache / "work")
        folders.sweep()
        with folders.new() as folder:
            repository = folder / "repository"
            with store.hold():
                store.fetch(lock.packages.values(), lock.archives, self.events)
                write_repository(lock.packages.values(), store, repository)
            programs = Programs()
            tree = folder / "toolchain"
            tree.mkdir()
            argv = apt.mmdebstrap(self._bootstrap(lock, repository), tree)
            programs.run(argv, on_line=on_line, env={"DEBIAN_FRONTEND": "noninteractive"})
            tree.chmod(0o755)
            yield WorkingRoot(folder / "work", [tree], programs)

    def _lock(self, packages: Sequence[str]) -> Lock:
        """The packages of a root with `packages`: those of the last time, unless there was none."""
        lines = [*self.archive.lines, *((self.cuda.line,) if self.cuda else ())]
        distribution = self.variant.distribution.model_dump()
        asked = digest_of([lines, distribution, self.variant.arch.debian, sorted(packages)])
        path = self.cache / "resolved" / f"{_NAME}-{self.variant.name}-{asked[:16]}.lock.yaml"
        if asked not in self._known:
            there = path.is_file() and not self.update
            self._known[asked] = read_lock(path) if there else self._resolve(packages, path)
        return self._known[asked]

    def _resolve(self, packages: Sequence[str], path: Path) -> Lock:
        if self.cuda:
            self.cuda.ensure()
        archives = archives_of(self.archive.lines) or default_archives(self.variant)
        lock = resolve(
            self.variant,
            (*archives, *(archives_of([self.cuda.line]) if self.cuda else ())),
            {_NAME: Request(None, tuple(sorted(packages)), f"the toolchain of variant {self.variant.name}")},
            self.cache,
            self.events,
            preferences=self.variant.cuda.preferences if self.cuda and self.variant.cuda else "",
        )
        write_lock(lock, path)
        return lock

    def _bootstrap(self, lock: Lock, repository: Path) -> Bootstrap:
        return Bootstrap(
            self.variant.distribution.codename,
            self.variant.arch.debian,
            self.variant.distribution.components(self.variant.cuda),
            (f"deb [trusted=yes] copy:{repository} ./",),
            tuple(lock.packages),
        )
