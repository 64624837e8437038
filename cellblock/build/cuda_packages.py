"""A variant's CUDA from NVIDIA's repository, as one more archive of packages for its build."""

from __future__ import annotations

from dataclasses import replace

from cellblock import paths
from cellblock.build.mirrors import Archive
from cellblock.cuda import CudaRepository
from cellblock.variants import Variant


def cuda_repository(variant: Variant) -> CudaRepository | None:
    """The archive that `variant` takes its CUDA from, not looked at yet; None for the distribution's."""
    if variant.cuda is None or variant.cuda.nvidia is None:
        return None
    return CudaRepository(variant, variant.cuda.nvidia, paths.cache() / "cuda")


def with_cuda(archive: Archive, repository: CudaRepository) -> Archive:
    """`archive` and the repository, which serves the build and is named in no image.

    An image that named it would follow it: the next `apt-get upgrade` in the jail would replace the CUDA
    that was pinned.
    """
    cuda = repository.variant.cuda
    local = (repository.keyring.parent, *repository.local)
    return replace(
        archive,
        local=(*archive.local, *local),
        build_only=(*archive.build_only, repository.line),
        preferences=archive.preferences + (cuda.preferences if cuda else ""),
    )
