# SPDX-License-Identifier: Apache-2.0
"""Keeps compiled objects in the cache, so that a change of one source file compiles only its folder again.

An object is compiled from one source, or from all sources of a folder (native/build.mk, TOGETHER). It is
found by a key over everything that shapes it: its sources, the project's files that they include, the
Makefiles, the shell lines, and the packages of the compiler by SHA-256. So it is only linked with the C
library that it was compiled for. Slurm's packages are only in the key of sources that include Slurm's
headers: variants of one distribution share all other objects, whatever Slurm they have.

Objects are put where `make` looks for them before it runs. `make` sees that they are newer than their
sources. What it generates, and what depends on that, it makes anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cellblock.build.layer_graph import Node
from cellblock.cache_key import digest_of
from cellblock.engine.recipe import CompileIn
from cellblock.files.sha256 import sha256_of_file

_FORMAT = 1
_INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
_SLURM = "slurm"
"""Slurm's headers are below this folder, and the packages that bring them have it in their names."""
_UNUSED_S = 30 * 24 * 3600
_MOST_BYTES = 64 << 20
"""One state of all sources takes 6 MB for one toolchain."""


@dataclass(frozen=True)
class KeptObjects:
    """Objects of the step `step`, which runs over the tree `upper`; `toolchain` is the layers it runs in."""

    folder: Path
    step: CompileIn
    upper: Path
    toolchain: tuple[Node, ...]

    def put_back(self) -> int:
        """Put the objects of sources that were compiled before where `make` looks for them; how many."""
        found = 0
        for place, key in self._keys.items():
            for kept in self.folder.glob(f"{key}-*.o"):
                if sha256_of_file(kept) != kept.stem.rpartition("-")[2]:
                    kept.unlink(missing_ok=True)  # a crash left it half written
                    continue
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(kept, place)
                os.utime(kept)
                found += 1
        return found

    def keep(self) -> None:
        """Keep the objects that are there now, and remove what was not used for long."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for place, key in self._keys.items():
            if place.is_file() and not any(self.folder.glob(f"{key}-*.o")):
                partial = self.folder / f".{os.getpid()}-{key}"
                shutil.copyfile(place, partial)
                partial.rename(self.folder / f"{key}-{sha256_of_file(partial)}.o")
        _trim(self.folder)

    @cached_property
    def _keys(self) -> Mapping[Path, str]:
        """Object -> key: of each source whose includes are all there, and of each folder of such sources."""
        if not self.step.objects:
            return {}
        objects = self._inside(self.step.objects)
        keys: dict[Path, str] = {}
        folders: dict[Path, list[str | None]] = {}
        for top in {self._inside(there.rpartition("/")[0]) for _, there in self.step.sources}:
            for path in sorted(top.rglob("*.c")):
                key, place = self._key(path, top), objects / path.relative_to(top).with_suffix(".o")
                folders.setdefault(place.parent, []).append(key)
                if key:
                    keys[place] = key
        for place, of_sources in folders.items():
            if all(of_sources):
                keys[place.with_name(f"{place.name}.o")] = digest_of(["folder", of_sources])
        return keys

    def _inside(self, path: str) -> Path:
        return self.upper / path.lstrip("/")

    def _key(self, source: Path, top: Path) -> str | None:
        needed: dict[str, str] = {}
        of_slurm = False
        waiting = [source]
        while waiting:
            path = waiting.pop()
            text = path.read_bytes()
            needed[str(path.relative_to(top))] = hashlib.sha256(text).hexdigest()
            for kind, name in _INCLUDE.findall(text.decode(errors="replace")):
                if kind == "<":
                    of_slurm |= name.startswith(f"{_SLURM}/")
                    continue
                beside = Path(os.path.normpath(path.parent / name))
                included = beside if beside.is_file() else top / name
                if not included.is_file() or not included.is_relative_to(top):
                    return None
                if str(included.relative_to(top)) not in needed:
                    waiting.append(included)
        said = [_FORMAT, self.step.lines, self._makefiles, self._packages(of_slurm), sorted(needed.items())]
        return digest_of([str(source.relative_to(top)), *said])

    @cached_property
    def _makefiles(self) -> list[tuple[str, str]]:
        return sorted(
            (str(path.relative_to(self.upper)), sha256_of_file(path))
            for _, there in self.step.sources
            for path in self._inside(there).rglob("*")
            if path.name == "Makefile" or path.suffix == ".mk"
        )

    def _packages(self, of_slurm: bool) -> list[str]:
        files = [node.key.digest for node in self.toolchain if not node.packages]
        packages = sorted(
            f"{package.name} {package.version} {package.sha256}"
            for node in self.toolchain
            for package in node.packages
            if of_slurm or _SLURM not in package.name
        )
        return [*files, *packages]


def _trim(folder: Path) -> None:
    """Remove what was not used for long, and what is too much: what was not used for longest first.

    Other builds keep objects there meanwhile, and remove them.
    """
    found = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            found.append((path.stat(), path))
    total = 0
    for status, path in sorted(found, key=lambda one: -one[0].st_mtime):
        total += status.st_size
        if total > _MOST_BYTES or time.time() - status.st_mtime > _UNUSED_S:
            path.unlink(missing_ok=True)
