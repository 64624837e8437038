# SPDX-License-Identifier: Apache-2.0
"""Keeps the root filesystem of a failed step for `build --keep`, in paths.cache()/failed/IMAGE-LAYER.

Each has a script, `enter`, that opens a shell in it. It stays until the same layer fails again with `--keep`,
or `cache trim`. After a kill in the middle of a move, the rest is a working folder, which the next build
removes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol


class FailedRoot(Protocol):
    """A root in which a step failed; its folder lies in the working folder."""

    @property
    def folder(self) -> Path:
        """What it is made of."""
        ...

    def enter_script(self, place: Path) -> str:
        """A script that opens a shell in it, when its folder was moved to `place`."""
        ...


def keep_root(cache: Path, name: str, folder: Path, root: FailedRoot) -> Path:
    """Move the working folder `folder`, where `root` failed, to `name`; returns a script that enters it."""
    place = cache / "failed" / name
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(place)
    enter = place / "enter"
    enter.write_text(root.enter_script(place / root.folder.relative_to(folder)), encoding="utf-8")
    return enter


def remove_kept_roots(cache: Path) -> None:
    """Remove them all."""
    shutil.rmtree(cache / "failed", ignore_errors=True)
