"""Throwaway roots with compilers: bootstrapped with mmdebstrap, lines run in an overlay over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cellblock.build import root
from cellblock.build.mirrors import Archive
from cellblock.build.work_folders import WorkFolders
from cellblock.cuda import CudaRepository
from cellblock.engine import apt
from cellblock.engine.recipe import Bootstrap
from cellblock.key import digest_of
from cellblock.process import Finished, Programs
from cellblock.slurm.toolchain import Bind
from cellblock.variants import Variant


class MmdebstrapToolchain:
    """Toolchain roots of `variant` from `archive`, below `folder`; see `cellblock.slurm.toolchain`."""

    def __init__(
        self, variant: Variant, archive: Archive, folder: Path, cuda: CudaRepository | None = None
    ) -> None:
        """`cuda` is one more archive, which has been looked at before."""
        self._variant = variant
        self._archive = archive
        self._cuda = cuda
        self._folders = WorkFolders(folder)

    def key(self, packages: Sequence[str]) -> str:
        """Changes with distribution and packages.

        Not with the mirror, which is another on each machine, nor with the versions it holds today: a
        distribution's updates keep what programs were compiled for.
        """
        return digest_of([self._variant.distribution.model_dump(), sorted(packages)])

    @contextmanager
    def workshop(self, packages: Sequence[str], on_line: Callable[[str], None]) -> Iterator[_Root]:
        """A root with `packages`, removed in the end. Raises ProgramFailed when one cannot be installed."""
        self._folders.sweep()
        with self._folders.new() as folder:
            programs = Programs()
            tree = folder / "toolchain"
            tree.mkdir()
            argv = apt.mmdebstrap(self._bootstrap(packages), tree)
            programs.run(argv, on_line=on_line, env={"DEBIAN_FRONTEND": "noninteractive"})
            tree.chmod(0o755)
            yield _Root(root.WorkingRoot(folder / "work", [tree], programs))

    def _bootstrap(self, packages: Sequence[str]) -> Bootstrap:
        distribution = self._variant.distribution
        return Bootstrap(
            distribution.codename,
            self._variant.arch.debian,
            distribution.components(self._variant.cuda),
            (*self._archive.lines, *((self._cuda.line,) if self._cuda else ())),
            tuple(packages),
            () if distribution.check_valid_until else ("Acquire::Check-Valid-Until=false",),
        )


class _Root:
    """A working root as compiling wants it."""

    def __init__(self, working: root.WorkingRoot) -> None:
        self._working = working

    def run(
        self,
        lines: Sequence[str],
        *,
        binds: Sequence[Bind] = (),
        on_line: Callable[[str], None],
    ) -> Finished:
        """Run shell lines inside."""
        mounts = [root.Bind(bind.source, bind.target, bind.writable) for bind in binds]
        return self._working.run(lines, binds=mounts, on_line=on_line)
