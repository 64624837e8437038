"""Roots of failed steps that `build --keep` leaves for a person: paths.cache()/failed/IMAGE-LAYER.

Each has a script, `enter`, that opens a shell in it. It stays until the same layer fails again with `--keep`,
or `cache trim`. What a kill leaves half moved is a working folder, which the next build removes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from cellblock.build.nodes import Node
from cellblock.build.root import WorkingRoot


def kept_roots(cache: Path) -> list[Path]:
    """The roots that are kept."""
    return sorted((cache / "failed").glob("*"))


def keep_root(cache: Path, node: Node, folder: Path, root: WorkingRoot) -> Path:
    """Move the working folder `folder` of `node`, in which `root` failed; returns what enters it."""
    place = cache / "failed" / f"{node.images[0]}-{node.id[:8]}"
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(place)
    enter = place / "enter"
    enter.write_text(root.enter_script(place / root.folder.relative_to(folder)), encoding="utf-8")
    return enter


def remove_kept_roots(cache: Path) -> None:
    """Remove them all."""
    shutil.rmtree(cache / "failed", ignore_errors=True)
