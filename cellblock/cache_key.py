# SPDX-License-Identifier: Apache-2.0
"""Computes cache keys, by which an image is built again exactly when something that goes into it changed.

A key is the SHA-256 over named inputs, each a digest of its own, so that the input that changed can be named.
Keys of needed images are inputs: a change of one image changes the keys of all that are made from it.

The inputs of an image are listed in build/image_plan.py, those of a layer in build/layer_graph.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Key:
    """The cache key of one image: hexadecimal SHA-256, and the digests it was made of."""

    inputs: Mapping[str, str]

    @property
    def digest(self) -> str:
        """64 hexadecimal digits."""
        return digest_of(dict(self.inputs))

    @property
    def short(self) -> str:
        """Enough digits to tell images of one machine apart."""
        return self.digest[:12]

    def changed_since(self, inputs: Mapping[str, str]) -> list[str]:
        """Names of inputs that differ from those of an earlier key."""
        names = {**inputs, **self.inputs}
        return sorted(name for name in names if inputs.get(name) != self.inputs.get(name))


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON-able value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


# Patterns of what editors, compilers and Python leave beside sources.
NOT_SOURCES = ("__pycache__", "build", ".mypy_cache", ".ruff_cache", ".pytest_cache", "*.abi3.so")


def digest_of_tree(folder: Path, suffixes: Iterable[str] | None = None) -> str:
    """SHA-256 over the files below `folder`: relative names, kind, executable bit, content.

    Without `folder`, a constant. `suffixes` limits the files, for folders that also hold what does not
    shape an image.
    """
    return digest_of(digests_of_files(folder, "", suffixes))


def digests_of_files(
    folder: Path,
    name: str,
    suffixes: Iterable[str] | None = None,
    ignored: Iterable[str] = NOT_SOURCES,
) -> dict[str, str]:
    """What each file below `folder` is: `name`/PATH -> kind, executable bit and SHA-256.

    Only the executable bit of a mode counts: git keeps no other. Links and empty folders count, `ignored`
    names do not. Without `folder`, nothing.
    """
    found: dict[str, str] = {}
    without = tuple(ignored)

    def counts(each: str) -> bool:
        return not any(fnmatchcase(each, pattern) for pattern in without)

    for directory, folders, files in os.walk(folder):
        folders[:] = sorted(filter(counts, folders))
        links = [each for each in folders if Path(directory, each).is_symlink()]
        if not folders and not files and suffixes is None and Path(directory) != folder:
            found[f"{name}/{Path(directory).relative_to(folder)}"] = "folder"
        for each in sorted((*filter(counts, files), *links)):
            if suffixes is not None and not each.endswith(tuple(suffixes)):
                continue
            path = Path(directory, each)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                said = f"link {path.readlink()}"
            elif stat.S_ISREG(mode):
                kind = "executable" if mode & 0o111 else "file"
                said = f"{kind} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            else:
                said = f"kind {stat.S_IFMT(mode):o}"
            found[f"{name}/{path.relative_to(folder)}"] = said
    return found
