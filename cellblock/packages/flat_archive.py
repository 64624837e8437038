# SPDX-License-Identifier: Apache-2.0
"""Makes flat apt archives (all debs in one folder) of packages built here: one for each key, in a folder.

A folder named after its key is whole: it is filled under another name and renamed. A crash leaves a folder
`KEY.new`, which the next process that makes the archive empties. Of two that make one, the second waits.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cellblock.files.flock import locked


@dataclass(frozen=True)
class FlatArchive:
    """The archive of `key` (hexadecimal digits) below `folder`, which holds all of its kind."""

    folder: Path
    key: str

    @property
    def path(self) -> Path:
        """The folder with the packages and their index, once it is made."""
        return self.folder / self.key[:32]

    @property
    def line(self) -> str:
        """The sources.list(5) line of the archive: what was just made here needs no signature."""
        return f"deb [trusted=yes] file://{self.path} ./"

    @property
    def is_made(self) -> bool:
        """Whether it is there."""
        return (self.path / "Release").is_file()

    def ensure(self, fill: Callable[[Path], None], waiting: Callable[[], None] | None = None) -> Path:
        """`path`, made if it is not there: `fill` puts packages, Packages and Release into a new folder.

        `waiting` is called once when another process makes it. Raises what `fill` raises; then there is none.
        """
        with locked(self.folder / f"{self.path.name}.lock", waiting=waiting):
            if not self.is_made:
                new = self.path.with_name(f"{self.path.name}.new")
                shutil.rmtree(new, ignore_errors=True)
                new.mkdir(parents=True)
                fill(new)
                new.rename(self.path)
        return self.path
