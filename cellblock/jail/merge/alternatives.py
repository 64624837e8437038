# SPDX-License-Identifier: Apache-2.0
"""Keeps users' choices in groups of update-alternatives(1) that the new image no longer has.

A group is one file in /var/lib/dpkg/alternatives: the mode, the link, a name and a link for each slave, an
empty line; for each choice its path, its priority and a path for each slave (empty where it has none); an
empty line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cellblock.jail.tree.databases import ALTERNATIVES, SystemDatabases

_ETC = b"etc/alternatives/"
_PRIORITY = re.compile(rb"-?[0-9]{1,10}")


@dataclass(frozen=True)
class Group:
    """One group. `links` are (name, link), the master's first; a choice has a path for each of them."""

    head: bytes
    links: tuple[tuple[bytes, bytes], ...]
    choices: dict[tuple[bytes, ...], int]
    """Paths, the master's first -> priority."""

    @property
    def text(self) -> bytes:
        """The file."""
        records = ((paths[0], b"%d" % priority, *paths[1:]) for paths, priority in self.choices.items())
        return self.head + b"\n\n" + b"".join(line + b"\n" for lines in records for line in lines) + b"\n"


def parse(name: bytes, text: bytes) -> Group | None:
    """The group that the file `name` holds; None where it is none, as users may have edited it."""
    head, _, rest = text.partition(b"\n\n")
    lines = head.splitlines()
    if len(lines) < 2 or len(lines) % 2:
        return None
    links = ((name, lines[1]), *zip(lines[2::2], lines[3::2], strict=True))
    size, choices, records = len(links) + 1, {}, rest.split(b"\n")
    for start in range(0, len(records) - size + 1, size):
        record = records[start : start + size]
        if not record[0]:
            break
        if not _PRIORITY.fullmatch(record[1]):
            return None
        choices[tuple(record[:1] + record[2:])] = int(record[1])
    return Group(head, links, choices)


def without_images(name: bytes, base: bytes, tree: bytes) -> bytes | None:
    """The tree's group less the choices that were the image's, which has it no more; None if none is left."""
    group, images = parse(name, tree), parse(name, base)
    if group is None or images is None:
        return None
    old = {paths[0] for paths in images.choices}
    left = {paths: priority for paths, priority in group.choices.items() if paths[0] not in old}
    return Group(group.head, group.links, left).text if left else None


def links_of_users(
    new: SystemDatabases, merged: Mapping[bytes, bytes], target_of: Callable[[bytes], bytes]
) -> dict[bytes, bytes]:
    """Link -> target, of the merged groups that only users have: what update-alternatives would make of them.

    `target_of` says what a link of the tree leads to: a choice that is still one stays.
    """
    found: dict[bytes, bytes] = {}
    for path, text in merged.items():
        if not path.startswith(ALTERNATIVES) or path in new:
            continue
        group = parse(path[len(ALTERNATIVES) :], text)
        if group is None or not group.choices:
            continue
        chosen = {paths[0]: paths for paths in group.choices}.get(target_of(_ETC + group.links[0][0]))
        best = chosen or max(group.choices, key=lambda paths: group.choices[paths])
        for (name, link), target in zip(group.links, best, strict=True):
            if target:
                found[link.strip(b"/")] = b"/" + _ETC + name
                found[_ETC + name] = target
    return found
