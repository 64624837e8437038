# SPDX-License-Identifier: Apache-2.0
"""Finds every byte that differs between two builds of one image, times included, for `build.py verify`.

diff.py compares images that are meant to differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cellblock.inspect.entry_diff import changes, describe
from cellblock.inspect.text_diff import contents, text_diff
from cellblock.oci.contents import ContentsReader, LayerContents
from cellblock.oci.layer_tar import Entry
from cellblock.oci.layout import Layout, StoredImage
from cellblock.oci.model import Descriptor


@dataclass(frozen=True)
class Difference:
    """One thing that differs. `layer` counts from 1; None for what is of no layer.

    `path` is relative to the image's root, empty for what is of no file. `what` are reasons in words;
    `lines` is a unified diff when the file is a small text.
    """

    layer: int | None
    path: str
    what: tuple[str, ...]
    lines: tuple[str, ...] = ()


def compare_images(layout_a: Layout, a: StoredImage, layout_b: Layout, b: StoredImage) -> list[Difference]:
    """What differs between `a` and `b`, in the order in which an image is made; empty for equal digests.

    What comes first is likely the cause of what comes later: a layer sees what is below it. Raises
    MalformedImage when a layer is absent or damaged.
    """
    if a.digest == b.digest:
        return []
    found: list[Difference] = []
    readers = ContentsReader(layout_a, digests=True), ContentsReader(layout_b, digests=True)
    pairs = zip(a.manifest.layers, b.manifest.layers, strict=False)
    for number, (one, other) in enumerate(pairs, 1):
        if one.digest != other.digest:
            first, second = readers[0].layer(one), readers[1].layer(other)
            differing = list(_layer(number, first, second))
            found += _with_texts(differing, layout_a, one, layout_b, other)
            if not differing:
                found.append(_without_entries(number, one, other, _diff_ids_equal(a, b, number)))
    if len(a.manifest.layers) != len(b.manifest.layers):
        count = f"{len(a.manifest.layers)} layers -> {len(b.manifest.layers)}"
        found.append(Difference(None, "", (count,)))
    found += _values("configuration", _configuration(a), _configuration(b))
    found += _values("manifest", _manifest(a), _manifest(b))
    if not found:
        found.append(Difference(None, "", ("the JSON of manifest or configuration is written differently",)))
    return found


def _diff_ids_equal(a: StoredImage, b: StoredImage, number: int) -> bool:
    return a.configuration.diff_ids[number - 1 : number] == b.configuration.diff_ids[number - 1 : number]


def _layer(number: int, one: LayerContents, other: LayerContents) -> Iterator[Difference]:
    for path in sorted({*one.entries, *other.entries}):
        before, after = one.entries.get(path), other.entries.get(path)
        if before is None or after is None:
            yield Difference(number, path, (_only_one(before, after),))
        elif what := changes(before, after, times=True):
            yield Difference(number, path, what)
    for kind, mine, its in (
        ("removes", one.removed, other.removed),
        ("empties", one.emptied, other.emptied),
    ):
        for path in sorted(mine ^ its):
            yield Difference(number, path, (f"only the {'first' if path in mine else 'second'} {kind} it",))
    if list(one.entries) != list(other.entries) and one.entries.keys() == other.entries.keys():
        first = next(x for x, y in zip(one.entries, other.entries, strict=True) if x != y)
        yield Difference(
            number, first, ("stands at another place in the archive: its order differs from here on",)
        )


def _only_one(before: Entry | None, after: Entry | None) -> str:
    if before is not None:
        return f"only in the first: {describe(before)}"
    return f"only in the second: {describe(after)}" if after is not None else ""


def _with_texts(
    found: list[Difference], layout_a: Layout, one: Descriptor, layout_b: Layout, other: Descriptor
) -> list[Difference]:
    paths = frozenset(each.path for each in found if any(what.startswith("content") for what in each.what))
    before, after = contents(layout_a, [one], paths), contents(layout_b, [other], paths)
    return [
        replace(each, lines=text_diff(each.path, before.get(each.path), after.get(each.path)))
        if each.path in paths
        else each
        for each in found
    ]


def _without_entries(number: int, one: Descriptor, other: Descriptor, same_tar: bool) -> Difference:
    if same_tar:
        sizes = f"{one.size} -> {other.size} bytes"
        return Difference(number, "", (f"the same archive, compressed to other bytes, {sizes}",))
    return Difference(number, "", ("all entries are equal, but not the bytes of their headers or padding",))


def _values(where: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*one, *other}):
        if one.get(name) != other.get(name):
            old, new = (
                json.dumps(each.get(name), ensure_ascii=False, sort_keys=True) for each in (one, other)
            )
            yield Difference(None, "", (f"{where}: {name} {old} -> {new}",))


def _configuration(image: StoredImage) -> dict[str, Any]:
    """All but the layers' digests, which were compared by then."""
    configuration = image.configuration
    history = {f"history {number}": dict(each) for number, each in enumerate(configuration.history, 1)}
    return {
        "platform": configuration.platform.to_json(),
        "created": configuration.created,
        **dict(configuration.settings),
        **history,
    }


def _manifest(image: StoredImage) -> dict[str, Any]:
    manifest = image.manifest
    return {
        "mediaType": manifest.media_type,
        "annotations": dict(manifest.annotations),
        "media types of layers": [layer.media_type for layer in manifest.layers],
    }
