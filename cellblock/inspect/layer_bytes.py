# SPDX-License-Identifier: Apache-2.0
"""Counts the bytes of a layer by package, and finds the largest files of each, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cellblock.inspect.owners import merged_path
from cellblock.oci.contents import LayerContents

_BLOCK = 512
"""tar(5): a header is a block, and contents fill whole blocks."""

_LARGEST = 20
_WORTH_NAMING = 16 << 10
"""Files below this many bytes are not told apart: a page with all names of an image has megabytes."""


class Part(NamedTuple):
    """A package's share of a layer: bytes of its tar, how many entries, and the largest files with theirs.

    `name` is empty for what no package owns.
    """

    name: str
    version: str
    bytes: int
    entries: int
    largest: tuple[tuple[str, int], ...] = ()


def parts_of(
    layer: LayerContents,
    owner: Mapping[str, str],
    versions: Mapping[str, str],
    uncompressed: int,
) -> tuple[Part, ...]:
    """The parts of `layer`, the largest first; together they have `uncompressed` bytes, the tar's size.

    `owner` gives the package of a path, `versions` what the layer's record says of its packages.
    """
    files: dict[str, list[tuple[str, int]]] = {}
    for path, entry in layer.entries.items():
        # Other names of one file are a header alone.
        content = entry.size if entry.kind == "file" else 0
        taken = _BLOCK + -(-content // _BLOCK) * _BLOCK
        package = owner.get(merged_path(path), "")
        if entry.kind == "directory":
            # Of many packages; dpkg's lists name it in each.
            package = ""
        files.setdefault(package, []).append((path, taken))
    # Long names and times, and the blocks at the end: of nothing in particular.
    rest = uncompressed - sum(taken for each in files.values() for _, taken in each)
    parts = [
        _part(name, versions.get(name, ""), each, rest if not name else 0) for name, each in files.items()
    ]
    if "" not in files and rest > 0:
        parts.append(Part("", "", rest, 0))
    return tuple(sorted(parts, key=lambda part: (-part.bytes, part.name)))


def _part(name: str, version: str, files: Sequence[tuple[str, int]], more: int) -> Part:
    large = sorted((each for each in files if each[1] >= _WORTH_NAMING), key=lambda each: (-each[1], each[0]))
    total = sum(taken for _, taken in files) + max(more, 0)
    return Part(name, version, total, len(files), tuple(large[:_LARGEST]))
