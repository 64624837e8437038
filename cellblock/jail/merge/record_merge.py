# SPDX-License-Identifier: Apache-2.0
"""Merges files that list records (dpkg's databases, passwd and the like) line by line or entry by entry.

Each merge takes the old image's content, the new image's and the tree's. A record that users changed stays
theirs; others follow the image. The order is the tree's; new records come at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cellblock.debian.status import split
from cellblock.jail.merge.alternatives import without_images
from cellblock.jail.merge.package_choice import Choices
from cellblock.jail.tree.databases import ACCOUNTS, ALTERNATIVES, STATUS, SystemDatabases
from cellblock.jail.tree.dpkg_database import Database

Key = Callable[[bytes], bytes]


def merge_records(
    base: Sequence[bytes], new: Sequence[bytes], tree: Sequence[bytes], key: Key
) -> list[bytes]:
    """The merged records. Several records with one key count as one."""
    old, ours, theirs = (_by_key(records, key) for records in (base, new, tree))
    merged: list[bytes] = []
    for name, records in theirs.items():
        if name in ours and (ours[name] == old.get(name) or old.get(name) != records):
            merged += records
        elif name in ours:
            merged += ours[name]
        elif old.get(name) != records:  # users' own, or changed by them
            merged += records
    for name, records in ours.items():
        if name not in theirs and name not in old:
            merged += records
    return merged


def _by_key(records: Sequence[bytes], key: Key) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return found


def _lines(base: bytes, new: bytes, tree: bytes) -> bytes:
    return _join(merge_records(base.splitlines(), new.splitlines(), tree.splitlines(), lambda line: line))


def _entries(base: bytes, new: bytes, tree: bytes) -> bytes:
    """Split passwd(5) and similar files into records; the name is the key."""
    return _join(
        merge_records(
            base.splitlines(), new.splitlines(), tree.splitlines(), lambda line: line.partition(b":")[0]
        )
    )


def _join(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _triples(base: bytes, new: bytes, tree: bytes) -> bytes:
    """Split dpkg's diversions into records of three lines."""
    sides = []
    for text in (base, new, tree):
        lines = text.splitlines()
        sides.append([b"\n".join(lines[start : start + 3]) for start in range(0, len(lines), 3)])
    return _join(merge_records(sides[0], sides[1], sides[2], lambda record: record.partition(b"\n")[0]))


def _stanzas(base: bytes, new: bytes, tree: bytes) -> bytes:
    """Split debconf's and apt's files into stanzas; the name, or package and architecture, is the key."""
    return b"\n".join(merge_records(split(base), split(new), split(tree), _stanza_key)) + (
        b"\n" if tree else b""
    )


def _stanza_key(stanza: bytes) -> bytes:
    wanted = (b"Name:", b"Package:", b"Architecture:")
    return b"\n".join(line for line in stanza.splitlines() if line.startswith(wanted))


def merge_group(base: bytes, new: bytes, tree: bytes) -> bytes:
    """Merge group(5) and gshadow(5): groups by name, and the members of each group by name."""
    sides = [_by_key(text.splitlines(), lambda line: line.partition(b":")[0]) for text in (base, new, tree)]
    merged = []
    for line in _entries(base, new, tree).splitlines():
        name = line.partition(b":")[0]
        old, ours, theirs = (side.get(name, [b""])[0] for side in sides)
        merged.append(_members(old, ours, theirs) if ours and theirs else line)
    return _join(merged)


def _members(base: bytes, new: bytes, tree: bytes) -> bytes:
    """Merge one group: the tree's line, with the members that the image added or removed."""
    sets = [line.rpartition(b":")[2].split(b",") if line else [] for line in (base, new, tree)]
    old, ours, theirs = ([one for one in members if one] for members in sets)
    members = [one for one in theirs if one in ours or one not in old]
    members += [one for one in ours if one not in theirs and one not in old]
    fields = [line.split(b":")[:-1] if line else [] for line in (base, new, tree)]
    head = fields[1] if fields[2] == fields[0] else fields[2]
    return b":".join([*head, b",".join(members)])


def merge_alternatives(base: bytes, new: bytes, tree: bytes) -> bytes:
    """Merge a group of update-alternatives(1): the choices of all sides; mode and names are the tree's."""
    if tree == base:
        return new
    if new == base or not tree:
        return tree
    head = tree.partition(b"\n\n")[0]
    links = max(1, (len(head.splitlines()) - 2) // 2 + 1)  # lines of one choice: path, priority, a slave each
    if len(new.partition(b"\n\n")[0].splitlines()) != len(head.splitlines()):
        return tree  # other slaves: update-alternatives itself puts that right the next time it runs
    size = links + 1

    def choices(text: bytes) -> list[bytes]:
        lines = text.partition(b"\n\n")[2].splitlines()
        return [
            b"\n".join(lines[start : start + size])
            for start in range(0, len(lines) - size + 1, size)
            if lines[start]
        ]

    merged = merge_records(
        choices(base), choices(new), choices(tree), lambda choice: choice.partition(b"\n")[0]
    )
    return head + b"\n\n" + _join(merged) + b"\n"


def merge_status(base: Database, new: Database, tree: Database, choices: Choices) -> bytes:
    """dpkg's status file, by the decisions on packages."""
    stanzas: list[bytes] = []
    for key, package in tree.packages.items():
        side = choices.side.get(key)
        if side == "image" and key in new.packages:
            ours, old = new.packages[key], base.packages.get(key)
            same = old is not None and old.stanza == ours.stanza and key not in choices.overridden
            stanzas.append(package.stanza if same else ours.stanza)
        elif side == "tree" or (side in (None, "none") and not package.is_installed):
            stanzas.append(package.stanza)
        # else: it was installed and is not to be any more
    for key, ours in new.packages.items():
        if key not in tree.packages and choices.side.get(key) == "image":
            stanzas.append(ours.stanza)
    return b"".join(stanza + b"\n" for stanza in stanzas)


_MERGES: dict[bytes, Callable[[bytes, bytes, bytes], bytes]] = {
    b"etc/group": merge_group,
    b"etc/gshadow": merge_group,
    b"var/lib/dpkg/diversions": _triples,
    b"var/lib/dpkg/statoverride": _lines,
    b"var/lib/dpkg/arch": _lines,
    b"var/lib/dpkg/triggers/File": _lines,
    b"etc/shells": _lines,
    b"var/lib/apt/extended_states": _stanzas,
    b"var/cache/debconf/config.dat": _stanzas,
    b"var/cache/debconf/templates.dat": _stanzas,
    b"var/cache/debconf/passwords.dat": _stanzas,
    **{path: _entries for path in ACCOUNTS if path not in (b"etc/group", b"etc/gshadow")},
}


def merge_databases(
    base: SystemDatabases,
    new: SystemDatabases,
    tree: SystemDatabases,
    package_databases: tuple[Database, Database, Database],
    choices: Choices,
) -> dict[bytes, bytes]:
    """Path -> merged content, of each file that is a list of records and that the tree has."""
    merged: dict[bytes, bytes] = {}
    paths = {*_MERGES, *(path for path in tree if path.startswith(ALTERNATIVES))}
    for path in sorted(paths & set(tree)):
        function = _MERGES.get(path, merge_alternatives)
        if path in new:
            merged[path] = function(base.get(path, b""), new[path], tree[path])
        elif path in base and path.startswith(ALTERNATIVES):
            left = without_images(path[len(ALTERNATIVES) :], base[path], tree[path])
            if left is not None:
                merged[path] = left
    if STATUS in tree:
        merged[STATUS] = merge_status(*package_databases, choices)
    return merged


def ids(databases: Mapping[bytes, bytes], path: bytes) -> dict[bytes, int]:
    """Name -> number, of passwd(5) or group(5)."""
    found = {}
    for line in databases.get(path, b"").splitlines():
        fields = line.split(b":")
        if len(fields) > 2 and fields[2].isdigit():
            found[fields[0]] = int(fields[2])
    return found
