# SPDX-License-Identifier: Apache-2.0
"""Sums up the files in which a volume differs from its image, as one line for each cause.

A cause is a package, a run of apt, or a directory that was removed or got another owner. `jail verify` and
`jail diff` print these lines. comparison.py finds the differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cellblock.jail.comparison import Differing
from cellblock.jail.merge.generated_files import is_generated
from cellblock.jail.tree.entry import shown

_ALONE = 3
"""Up to this many files of one directory, changed alike, have a line each."""


class Line(NamedTuple):
    """One line of the summary, and the files that it stands for (at least one)."""

    text: str
    files: Sequence[Differing]


def owner_of_records(path: bytes) -> str:
    """The package whose programs write this file at every installation; empty for any other file."""
    if path.startswith(b"var/lib/dpkg/"):
        return "dpkg"
    if path.startswith((b"var/lib/apt/", b"var/cache/apt/", b"var/log/apt/")):
        return "apt"
    return ""


def fold(found: Iterable[Differing], *, alike: bool = True) -> list[Line]:
    """The lines in the order of their first files; `alike`: also of single files of one directory."""
    files = list(found)
    changed = {(one.entry.path, one.what) for one in files}
    groups: dict[tuple[str, bytes, str], list[Differing]] = {}
    for one in files:
        groups.setdefault(_cause(one, changed), []).append(one)
    if alike:
        groups = _together(groups)
    return [line for cause, members in groups.items() for line in _lines(cause, members)]


def _cause(one: Differing, changed: set[tuple[bytes, str]]) -> tuple[str, bytes, str]:
    if one.is_link_for_folder:
        return "file", one.entry.path, one.what
    if one.package:
        return "package", b"", one.package
    if owner_of_records(one.entry.path) or is_generated(one.entry.path):
        return "records", b"", ""
    top = one.entry.path
    while (parent := top.rpartition(b"/")[0]) and (parent, one.what) in changed:
        top = parent
    return "tree", top, one.what


def _together(
    groups: dict[tuple[str, bytes, str], list[Differing]],
) -> dict[tuple[str, bytes, str], list[Differing]]:
    """Join the groups of single files in one directory into one group."""
    alone: dict[tuple[bytes, str], int] = {}
    for (kind, path, what), members in groups.items():
        if kind == "tree" and len(members) == 1:
            key = path.rpartition(b"/")[0], what
            alone[key] = alone.get(key, 0) + 1
    found: dict[tuple[str, bytes, str], list[Differing]] = {}
    for (kind, path, what), members in groups.items():
        folder = path.rpartition(b"/")[0]
        many = kind == "tree" and len(members) == 1 and alone[folder, what] > _ALONE
        found.setdefault(("folder", folder, what) if many else (kind, path, what), []).extend(members)
    return found


def _lines(cause: tuple[str, bytes, str], members: list[Differing]) -> Iterable[Line]:
    kind, path, what = cause
    count = len(members)
    if kind == "package":
        gone = all(one.now is None for one in members if not owner_of_records(one.entry.path))
        yield Line(f"package {what}: {'removed' if gone else 'another version'}, {_files(count)}", members)
    elif kind == "records" and count > 1:
        yield Line(f"what apt, dpkg and running systems write: {_files(count)} below /var and /etc", members)
    elif kind == "folder":
        yield Line(f"{shown(path)}: {what}, {_files(count)} in it", members)
    elif kind == "tree" and count > 1:
        yield Line(f"{shown(path)}: {what}, and so {_files(count - 1)} below it", members)
    else:
        yield from (Line(f"{shown(one.entry.path)}: {one.what}", [one]) for one in members)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"
