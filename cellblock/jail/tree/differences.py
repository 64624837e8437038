"""What is to be merged into a tree: how two images differ, or the tree before and after an upgrade."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cellblock.jail.tree import delta
from cellblock.jail.tree.controls import Controls
from cellblock.jail.tree.delta import Deltas
from cellblock.jail.tree.entry import Entry


@dataclass(frozen=True)
class Image:
    """One side of a merge: what an image's tree is. `entries` replaces what the manifest says of a path."""

    manifest: Path
    controls: Controls
    checked: bool = False
    """Whether the manifest's checksum was just looked at, or written, by this process."""


@dataclass(frozen=True)
class Changes:
    """What to merge into a tree: the differences of two images, or of a tree before and after."""

    paths: Deltas
    base: Controls
    new: Controls
    look_up: Callable[[Iterable[bytes]], dict[bytes, Entry]]
    """Entries of the new side by path, for paths that are no difference."""
    groups: Callable[[], dict[bytes, list[bytes]]]
    """Hard links of the new side: first name -> all names."""


def between_images(base: Image, new: Image) -> Changes:
    """The differences of two images."""
    return Changes(
        delta.compare(
            base.manifest, new.manifest, checked=[one.manifest for one in (base, new) if one.checked]
        ),
        base.controls,
        new.controls,
        lambda paths: delta.look_up(new.manifest, paths),
        lambda: delta.groups(new.manifest),
    )
