# SPDX-License-Identifier: Apache-2.0
"""Provides archives of packages beside the distribution's: compiled Slurm, stand-ins, NVIDIA's CUDA.

They serve builds only; no image names them. The first two are folders in this machine's cache, the third is
reached by a mirror and a keyring of this machine. So a lock names each by what it is (`cellblock:slurm-...`),
and a build replaces that name by where the archive is on this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from cellblock import paths
from cellblock.build.mirrors import Archive
from cellblock.build.stand_ins import StandIns
from cellblock.build.toolchain import LockedToolchain
from cellblock.cache_key import digest_of
from cellblock.cuda import CudaRepository
from cellblock.events import Events
from cellblock.lock.archives import PackageArchive, parse_line
from cellblock.lock.model import Lock
from cellblock.lock.resolve import Request, resolve
from cellblock.slurm import SlurmRepository
from cellblock.slurm.toolchain import Toolchain
from cellblock.variants import Variant

_SCHEME = "cellblock:"


@dataclass(frozen=True)
class ExtraArchives:
    """The archives of one variant beside the distribution's; either may be missing."""

    slurm: SlurmRepository | None
    cuda: CudaRepository | None
    stand_ins: StandIns | None = None

    @cached_property
    def _by_name(self) -> Mapping[str, PackageArchive]:
        """What a lock calls an archive -> the archive here."""
        archives: dict[str, PackageArchive] = {}
        if self.slurm:
            source = self.slurm.source
            archives[f"{_SCHEME}slurm-{source.release}-{source.sha256[:16]}"] = parse_line(
                self.slurm.archive.line
            )
        if self.cuda:
            trust = self.cuda.source
            archives[f"{_SCHEME}cuda-{trust.version}-{trust.fingerprint[-16:]}"] = parse_line(self.cuda.line)
        if self.stand_ins:
            archives[f"{_SCHEME}stand-ins-{self.stand_ins.key[:16]}"] = parse_line(
                self.stand_ins.archive.line
            )
        return archives

    @property
    def archives(self) -> tuple[PackageArchive, ...]:
        """The archives as they are reached from here."""
        return tuple(self._by_name.values())

    @property
    def preferences(self) -> str:
        """A text of apt_preferences(5)."""
        cuda = self.cuda.variant.cuda if self.cuda else None
        return cuda.preferences if cuda else ""

    @property
    def tarballs(self) -> dict[str, str]:
        """SHA-256 of what is compiled, by name, for the lock."""
        return {f"slurm {self.slurm.source.release}": self.slurm.source.sha256} if self.slurm else {}

    @cached_property
    def key(self) -> str | None:
        """What of them shapes images, wherever they are reached; None without any."""
        slurm = [self.slurm.source.sha256, list(self.slurm.arguments)] if self.slurm else None
        return digest_of([slurm, *self._by_name]) if self._by_name else None

    def ensure(self, events: Events) -> None:
        """Have them: compile what is to be compiled, check what is to be trusted.

        Raises CellblockError as SlurmRepository.ensure and CudaRepository.ensure do.
        """
        if self.cuda:
            self.cuda.ensure()
        if self.slurm:
            self.slurm.ensure(events)
        if self.stand_ins:
            self.stand_ins.ensure()

    def named(self, lock: Lock) -> Lock:
        """`lock` without what holds on this machine only."""
        names = {archive: name for name, archive in self._by_name.items()}
        return replace(
            lock,
            archives=tuple(
                PackageArchive((names[archive],), archive.suite) if archive in names else archive
                for archive in lock.archives
            ),
        )

    def here(self, archives: Iterable[PackageArchive]) -> tuple[PackageArchive, ...]:
        """Archives of a lock as they are reached from here; those of another variant stay as they are."""
        return tuple(self._by_name.get(archive.uris[0], archive) for archive in archives)

    def added_to(self, archive: Archive) -> Archive:
        """`archive` and these, for an engine whose containers install packages by themselves."""
        folders = [self.slurm.archive.path] if self.slurm else []
        if self.cuda:
            folders += [self.cuda.keyring.parent, *self.cuda.local]
        if self.stand_ins:
            folders.append(self.stand_ins.archive.path)
        return replace(
            archive,
            local=(*archive.local, *folders),
            build_only=tuple(extra.line for extra in self.archives),
            preferences=self.preferences,
        )


def extra_archives(
    variant: Variant,
    archive: Archive,
    events: Events,
    *,
    update: bool = False,
    toolchain: Toolchain | None = None,
) -> ExtraArchives:
    """What `variant` takes from elsewhere than `archive`, the distribution's; nothing is made yet.

    `update`: compile with what the archive has now; `toolchain` instead of one of the distribution.
    """
    slurm = cuda = None
    if variant.cuda and variant.cuda.nvidia:
        cuda = CudaRepository(variant, variant.cuda.nvidia, paths.cache() / "cuda")
    if variant.slurm_source:
        compilers = toolchain or LockedToolchain(variant, archive, paths.cache(), events, cuda, update)
        slurm = SlurmRepository(variant, variant.slurm_source, compilers, paths.cache() / "slurm")
    empty = variant.distribution.stand_ins
    stand_ins = StandIns(empty, variant.arch.debian, paths.cache() / "stand-ins") if empty else None
    return ExtraArchives(slurm, cuda, stand_ins)


def resolve_with(
    extras: ExtraArchives,
    variant: Variant,
    archives: Sequence[PackageArchive],
    requests: Mapping[str, Request],
    events: Events,
    *,
    snapshot: str | None = None,
) -> Lock:
    """The lock of `variant` from `archives` and the extra ones, which are made first.

    Raises what `cellblock.lock.resolve.resolve` and `ExtraArchives.ensure` raise.
    """
    extras.ensure(events)
    lock = resolve(
        variant,
        (*archives, *extras.archives),
        requests,
        paths.cache(),
        events,
        snapshot=snapshot,
        tarballs=extras.tarballs,
        preferences=extras.preferences,
    )
    return extras.named(lock)


def of_images(archives: Iterable[PackageArchive]) -> tuple[PackageArchive, ...]:
    """Those archives of a lock that its images name in /etc/apt."""
    return tuple(archive for archive in archives if not archive.uris[0].startswith(_SCHEME))
