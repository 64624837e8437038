"""Where the packages of a variant come from, those included that are compiled or pinned for it."""

from __future__ import annotations

from cellblock.build.cuda_packages import cuda_repository, with_cuda
from cellblock.build.mirrors import Archive, archive
from cellblock.build.slurm_packages import slurm_repository, with_repository
from cellblock.events import Events
from cellblock.variants import Variant


def all_archives(mirrors: tuple[str, ...], variant: Variant, events: Events) -> tuple[Archive, str | None]:
    """Where a variant's packages come from, with those that are made for it: (archives, key of its Slurm).

    Compiles Slurm when the variant asks for a source release that is not compiled yet, and checks the key
    of a CUDA repository; raises CellblockError as these do.
    """
    sources = archive(variant, mirrors)
    cuda = cuda_repository(variant)
    if cuda:
        cuda.ensure()
        sources = with_cuda(sources, cuda)
    slurm = slurm_repository(variant, sources)
    if slurm:
        slurm.ensure(events)
        sources = with_repository(sources, slurm)
    return sources, slurm.key if slurm else None
