# SPDX-License-Identifier: Apache-2.0
"""Compiles the Slurm of a variant into a flat apt archive: once for each key, below CELLBLOCK_CACHE/slurm.

It calls the other modules of this folder in order.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.resources import as_file, files
from pathlib import Path
from typing import TextIO

from cellblock.bind_mount import BindMount
from cellblock.cache_key import digest_of, digest_of_tree
from cellblock.errors import CellblockError
from cellblock.events import Events, Output
from cellblock.packages.flat_archive import FlatArchive
from cellblock.process import ProgramFailed
from cellblock.slurm import features, packages, tarball
from cellblock.slurm.toolchain import Toolchain
from cellblock.variants import SlurmSource, Variant

SUBJECT = "slurm packages"
"""Under this name compiling appears among the events."""


@dataclass(frozen=True)
class SlurmRepository:
    """The archive of one variant's Slurm. `folder` holds the caches of all; `cflags` are the compiler's."""

    variant: Variant
    source: SlurmSource
    toolchain: Toolchain
    folder: Path
    cflags: str = ""

    @cached_property
    def _chosen(self) -> features.Chosen:
        return features.choose(self.variant, self.source)

    @property
    def packages(self) -> tuple[str, ...]:
        """What the toolchain must hold."""
        return self._chosen.packages

    @property
    def arguments(self) -> tuple[str, ...]:
        """What configure is told of features."""
        return self._chosen.arguments

    @cached_property
    def key(self) -> str:
        """Changes with whatever shapes a package: tarball, options, toolchain, and what packs."""
        with as_file(files("cellblock.slurm").joinpath("scripts")) as scripts:
            return digest_of(
                {
                    "tarball": [self.source.sha256, self.source.release],
                    "options": list(self._chosen.arguments),
                    "cflags": self.cflags,
                    "toolchain": self.toolchain.key(self._chosen.packages),
                    "architecture": self.variant.arch.debian,
                    "scripts": digest_of_tree(scripts),
                    "packages": [packages.VERSION, *map(asdict, packages.PACKAGES)],
                }
            )

    @property
    def archive(self) -> FlatArchive:
        """Where the packages are, once they are made."""
        return FlatArchive(self.folder, self.key)

    @property
    def log(self) -> Path:
        """All that compiling printed, the last time."""
        return self.folder / f"{self.key[:32]}.log"

    def ensure(self, events: Events) -> Path:
        """The folder of `archive`, compiled if it is not there.

        Raises CellblockError when the tarball cannot be had or is another one, when configure does not
        find what was asked for, or when compiling fails; DefinitionError when it is another release.
        """
        if self.archive.is_made:
            return self.archive.path
        where = f"variant {self.variant.name}: slurm"
        path = tarball.fetch(self.source, self.folder / "tarballs", where)
        release = tarball.read_release(path, self.source, where)
        return self.archive.ensure(
            lambda new: self._make(new, path, release, where, events),
            waiting=lambda: events.info(f"{SUBJECT}: another build compiles the same; waiting for it"),
        )

    def _make(self, new: Path, path: Path, release: tarball.Release, where: str, events: Events) -> None:
        with (
            self.log.open("w", encoding="utf-8", buffering=1) as log,
            tempfile.TemporaryDirectory(prefix="cellblock-") as inputs,
            as_file(files("cellblock.slurm").joinpath("scripts")) as scripts,
        ):
            shutil.copyfile(path, Path(inputs, "slurm.tar"))
            _write_packages(Path(inputs), release, self.variant.arch.debian)
            run = _Steps(events, log, where, self.log)
            with ExitStack() as stack:
                with run.step("make the toolchain"):
                    made = self.toolchain.workshop(self._chosen.packages, run.line)
                    workshop = stack.enter_context(made)
                binds = (
                    BindMount(scripts, "/scripts"),
                    BindMount(Path(inputs), "/in"),
                    BindMount(new, "/out", writable=True),
                )
                exports = [
                    f"export SOURCE_DATE_EPOCH={release.epoch}",
                    f"export SLURM_CFLAGS={shlex.quote(self.cflags)}",
                ]

                def script(title: str, *argv: str) -> None:
                    with run.step(title):
                        line = shlex.join(["sh", *argv])
                        workshop.run([*exports, line], binds=binds, on_line=run.line)

                script("configure", "/scripts/configure.sh", *self._chosen.arguments)
                self._check(new, where)
                script("compile", "/scripts/compile.sh")
                script("package", "/scripts/package.sh")

    def _check(self, new: Path, where: str) -> None:
        results = [new / name for name in ("config.h", "config.status")]
        text = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in results)
        self._chosen.check(text, where, self.log)
        for path in results:
            path.unlink()


class _Steps:
    """Steps as events, with all output in a log; a failed one is told with the log's name."""

    def __init__(self, events: Events, log: TextIO, where: str, path: Path) -> None:
        self._events = events
        self._log = log
        self._where = where
        self._path = path
        self._title = ""

    def line(self, text: str) -> None:
        self._log.write(f"{text}\n")
        self._events.emit(Output(SUBJECT, self._title, text))

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        self._title = title
        self._log.write(f"== {title}\n")
        try:
            with self._events.step(SUBJECT, title):
                yield
        except ProgramFailed as error:
            lines = "".join(f"\n  | {line}" for line in error.finished.tail)
            raise CellblockError(
                f"{self._where}: step '{title}' failed with status {error.finished.status}{lines}",
                hint=f"see the whole output in {self._path}",
            ) from error


def _write_packages(folder: Path, release: tarball.Release, architecture: str) -> None:
    """What package.sh wants to know of each package, in order."""
    for number, package in enumerate(packages.PACKAGES):
        into = folder / "packages" / f"{number:02}-{package.name}"
        into.mkdir(parents=True)
        (into / "control").write_text(packages.stanza(package, release, architecture), encoding="utf-8")
        (into / "files").write_text("".join(f"{pattern}\n" for pattern in package.files), encoding="utf-8")
