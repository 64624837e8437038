# SPDX-License-Identifier: Apache-2.0
"""Maps the numbers of users and groups in an image to those in the tree, by name.

Users create accounts, so the number of a new system user of the image may be taken; and two builds of an
image may number their system users differently. Files of the image get the number that the tree has for
their owner's name. The number of an account in the tree never changes, because files that no image knows
may belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cellblock.jail.merge.record_merge import ids
from cellblock.jail.tree.databases import SystemDatabases
from cellblock.jail.tree.entry import Entry

_SYSTEM = range(100, 1000)
"""Numbers that Debian's adduser(8) gives to system users and groups."""


@dataclass(frozen=True)
class Identities:
    """Numbers of an image's owners -> numbers in the tree, where they differ."""

    users: Mapping[int, int] = field(default_factory=dict)
    groups: Mapping[int, int] = field(default_factory=dict)

    def apply(self, entry: Entry | None) -> Entry | None:
        """The entry as it is to be in the tree."""
        if entry is None or not (self.users or self.groups):
            return entry
        return entry._replace(
            uid=self.users.get(entry.uid, entry.uid), gid=self.groups.get(entry.gid, entry.gid)
        )


def between(image: SystemDatabases, tree: SystemDatabases) -> Identities:
    """Pair the numbers of two sets of accounts by the names that both have."""

    def differing(path: bytes) -> dict[int, int]:
        theirs = ids(tree, path)
        return {
            number: theirs[name]
            for name, number in ids(image, path).items()
            if theirs.get(name, number) != number
        }

    return Identities(differing(b"etc/passwd"), differing(b"etc/group"))


def renumbered(image: SystemDatabases, tree: SystemDatabases) -> dict[bytes, bytes]:
    """The image's databases, with the tree's numbers, and free ones for users and groups new to it."""
    result = dict(image)
    users = _other_numbers(image, tree, b"etc/passwd")
    groups = _other_numbers(image, tree, b"etc/group")
    if not users and not groups:
        return result
    lines = []
    for line in image.get(b"etc/passwd", b"").splitlines():
        fields = line.split(b":")
        if len(fields) > 3 and fields[2].isdigit() and fields[3].isdigit():
            fields[2] = b"%d" % users.get(int(fields[2]), int(fields[2]))
            fields[3] = b"%d" % groups.get(int(fields[3]), int(fields[3]))
        lines.append(b":".join(fields))
    result[b"etc/passwd"] = b"".join(line + b"\n" for line in lines)
    lines = []
    for line in image.get(b"etc/group", b"").splitlines():
        fields = line.split(b":")
        if len(fields) > 2 and fields[2].isdigit():
            fields[2] = b"%d" % groups.get(int(fields[2]), int(fields[2]))
        lines.append(b":".join(fields))
    result[b"etc/group"] = b"".join(line + b"\n" for line in lines)
    return result


def _other_numbers(image: SystemDatabases, tree: SystemDatabases, path: bytes) -> dict[int, int]:
    """Find new numbers for accounts of the image whose number or name the tree uses differently."""
    ours, theirs = ids(image, path), ids(tree, path)
    taken = {*theirs.values(), *ours.values()}
    found = {}
    for name, number in ours.items():
        if name in theirs:
            if theirs[name] != number:
                found[number] = theirs[name]
        elif number in theirs.values():
            free = next((one for one in reversed(_SYSTEM) if one not in taken), number)
            taken.add(free)
            found[number] = free
    return found
