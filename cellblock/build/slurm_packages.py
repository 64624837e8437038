"""A variant's Slurm from source, as one more archive of packages for its build."""

from __future__ import annotations

from dataclasses import replace

from cellblock import paths
from cellblock.build.mirrors import Archive
from cellblock.build.toolchain import MmdebstrapToolchain
from cellblock.slurm import SlurmRepository
from cellblock.variants import Variant


def slurm_repository(variant: Variant, archive: Archive) -> SlurmRepository | None:
    """The archive of the Slurm that `variant` compiles, not made yet; None when it compiles none.

    `archive` is where the toolchain's packages come from.
    """
    if variant.slurm_source is None:
        return None
    toolchain = MmdebstrapToolchain(variant, archive, paths.cache() / "work")
    return SlurmRepository(variant, variant.slurm_source, toolchain, paths.cache() / "slurm")


def with_repository(archive: Archive, repository: SlurmRepository) -> Archive:
    """`archive` and the repository, which serves the build and is named in no image."""
    return replace(
        archive,
        local=(*archive.local, repository.archive),
        build_only=(*archive.build_only, repository.line),
    )
