# SPDX-License-Identifier: Apache-2.0
"""Lists what users changed in a volume (`jail diff`), by package, owner and size; or exports it as a tar."""

from __future__ import annotations

import contextlib
import heapq
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from cellblock.errors import CellblockError
from cellblock.jail.apply.transaction_runner import open_volume
from cellblock.jail.comparison import Differing, differing
from cellblock.jail.difference_summary import owner_of_records
from cellblock.jail.merge.record_merge import ids
from cellblock.jail.tree import databases, manifest, manifest_diff, walk
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.dpkg_database import Database, info_owner
from cellblock.jail.tree.entry import Entry, order
from cellblock.jail.tree.file_handle import FileHandle, Stamp, UnreadableError
from cellblock.jail.tree.walk import Seen
from cellblock.jail.volume.base_databases import known_databases
from cellblock.jail.volume.volume import Volume

Kind = Literal["added", "changed", "removed"]


class Change(NamedTuple):
    """One path that differs from the image. `size` is in bytes, 0 for a removed file."""

    kind: Kind
    path: bytes
    size: int
    owner: str
    package: str
    is_folder: bool


@dataclass
class Group:
    """Changes of one package, or of none, by one owner."""

    package: str
    owner: str
    added: int = 0
    changed: int = 0
    removed: int = 0
    bytes: int = 0


@dataclass
class Summary:
    """The groups, the largest first, and the totals."""

    groups: list[Group] = field(default_factory=list)
    files: int = 0
    bytes: int = 0


def changes(path: Path, too_long: walk.TooLong | None = None) -> Iterator[Change]:
    """List every change: first of paths in the image, then of others, each in the order of a sorted walk.

    Files are compared by metadata, a file's time included; `too_long` is called as by `walk`. Raises
    CellblockError.
    """
    for found in _both(path, too_long):
        yield from found


def _both(path: Path, too_long: walk.TooLong | None) -> tuple[Iterator[Change], Iterator[Change]]:
    """Changes of paths in the image, and changes of others."""
    volume, state = open_volume(path)
    manifest_diff.check(volume.manifest)
    tree = databases.of_root(volume.root)
    names = {number: name.decode(errors="replace") for name, number in ids(tree, b"etc/passwd").items()}
    packages, of_users = _owners(known_databases(volume, state), tree)

    def package(name: bytes) -> str:
        owner = info_owner(name)
        if owner in of_users:
            return owner
        # dpkg writes records anew also of packages that nobody touched.
        return owner_of_records(name) or packages.get(name) or ""

    return (
        (_of_the_image(one, names, package) for one in differing(volume, content=False)),
        (_added_one(seen, names, package) for seen in _added(volume, too_long)),
    )


Package = Callable[[bytes], str]


def _of_the_image(one: Differing, names: dict[int, str], package: Package) -> Change:
    owner = names.get(one.now.uid, str(one.now.uid)) if one.now else ""
    kind: Kind = "removed" if one.now is None else "changed"
    size = one.now.size if one.now and one.now.kind == "f" else 0
    return Change(kind, one.entry.path, size, owner, package(one.entry.path), one.entry.kind == "d")


def _added_one(seen: Seen, names: dict[int, str], package: Package) -> Change:
    name, status = seen.path, seen.status
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    owner = names.get(status.st_uid, str(status.st_uid))
    return Change("added", name, size, owner, package(name), stat.S_ISDIR(status.st_mode))


def _owners(
    image: databases.SystemDatabases, tree: databases.SystemDatabases
) -> tuple[dict[bytes, str], set[str]]:
    """Path -> package, by dpkg's lists of the image and of the tree; what several packages own has none.

    And the packages that users installed, changed or removed.

    A package that users installed, changed or removed comes before one that is as in the image.
    """
    base, now = Database(image, {}), Database(tree, {})
    theirs: dict[bytes, str] = {}
    ours: dict[bytes, str] = {}
    of_users = set()
    for key in sorted({*base.installed, *now.installed}):
        versions = [one.installed[key].version if key in one.installed else "" for one in (base, now)]
        if versions[0] != versions[1]:
            of_users.add(key)
            for database in (base, now):
                theirs.update((path, key) for path in database.files(key))
        else:
            for path in base.files(key):
                ours[path] = "" if path in ours else key
    return {**ours, **theirs}, of_users


def summarize(found: Iterator[Change]) -> Summary:
    """Add changes up; holds one group in memory for each package and owner, not the changes."""
    groups: dict[tuple[str, str], Group] = {}
    summary = Summary()
    for one in found:
        group = groups.setdefault((one.package, one.owner), Group(one.package, one.owner))
        setattr(group, one.kind, getattr(group, one.kind) + 1)
        group.bytes += one.size
        summary.files += 1
        summary.bytes += one.size
    summary.groups = sorted(groups.values(), key=lambda group: (-group.bytes, group.package, group.owner))
    return summary


def _added(volume: Volume, too_long: walk.TooLong | None) -> Iterator[Seen]:
    """List files of the tree that are not in the manifest; both are read side by side."""
    lines = _paths(volume.manifest)
    expected = next(lines, None)
    for seen in walk.walk(os.fsencode(volume.root), too_long=too_long):
        key = order(seen.path)
        while expected is not None and expected < key:
            expected = next(lines, None)
        if expected != key and not stat.S_ISSOCK(seen.status.st_mode):
            yield seen


def _paths(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        next(file)
        for line in file:
            if line.startswith(b"end "):
                return
            name = manifest.unescape(line[line.rindex(b" ") + 1 : -1])
            if name:
                yield order(name)


def export(path: Path, target: Path, too_long: walk.TooLong | None = None) -> int:
    """Write the changes as a layer (OCI image-spec 1.1): files as they are, removals as whiteouts.

    Laid over the image, it makes the users' tree again. Returns the number of members.
    `too_long` is called as by `walk`. Raises CellblockError and OSError; what was written by then is removed.
    """
    volume, _ = open_volume(path)
    # Both are sorted: users may have made millions of files.
    members = heapq.merge(*_both(path, too_long), key=lambda change: order(change.path))
    try:
        file = target.open("xb")
    except FileExistsError:
        raise CellblockError(
            f"{target} exists; nothing was written", hint="name a new file, or remove that one"
        ) from None
    try:
        with file:
            return _export(file, volume, members)
    except OSError as error:
        target.unlink(missing_ok=True)
        if error.filename is None:  # of a write
            error.filename = str(target)
        raise
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _export(file: BinaryIO, volume: Volume, members: Iterator[Change]) -> int:
    count = 0
    links: dict[tuple[int, int], str] = {}
    with (
        tarfile.open(
            fileobj=file, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
        ) as archive,
        TreeAccess(os.fsencode(volume.root)) as access,
    ):
        gone: bytes | None = None
        for one in members:
            count += 1
            if one.kind == "removed":
                if gone is None or not one.path.startswith(gone + b"/"):
                    folder, _, name = one.path.rpartition(b"/")
                    whiteout = tarfile.TarInfo(_text((folder + b"/" if folder else b"") + b".wh." + name))
                    archive.addfile(whiteout)
                    gone = one.path
                continue
            # Users put something else in the place of its directory, or nobody can read it.
            with contextlib.suppress(Blocked, UnreadableError):
                _export_one(archive, access, one.path, links)
    return count


def _export_one(
    archive: tarfile.TarFile, access: TreeAccess, path: bytes, links: dict[tuple[int, int], str]
) -> None:
    handle = access.open_handle(path)
    if handle is not None:
        with handle:
            entry = handle.entry(path, "")
            if entry is not None:
                _export_handle(archive, handle, entry, links)


def _export_handle(
    archive: tarfile.TarFile, handle: FileHandle, entry: Entry, links: dict[tuple[int, int], str]
) -> None:
    path, status = entry.path, handle.status
    member = tarfile.TarInfo(_text(path) or ".")
    member.mode, member.uid, member.gid = entry.mode, entry.uid, entry.gid
    seconds, rest = divmod(abs(status.st_mtime_ns), 10**9)
    member.mtime = status.st_mtime_ns // 10**9
    headers = {"mtime": f"{'-' if status.st_mtime_ns < 0 else ''}{seconds}.{rest:09d}"}
    headers.update({f"SCHILY.xattr.{_text(name)}": _text(value) for name, value in entry.xattrs})
    member.pax_headers = headers
    inode = (status.st_dev, status.st_ino)
    if entry.kind != "d" and inode in links:
        member.type, member.linkname = tarfile.LNKTYPE, links[inode]
        archive.addfile(member)
        return
    if entry.kind == "f":
        descriptor = handle.open()
        with os.fdopen(descriptor, "rb") as file:
            content = _Exactly(file, Stamp.of(os.fstat(descriptor)).size)
            member.size = content.size
            archive.addfile(member, content)
        if status.st_nlink > 1:
            links[inode] = member.name
        return
    if status.st_nlink > 1:
        links[inode] = member.name
    member.type = {
        "d": tarfile.DIRTYPE,
        "l": tarfile.SYMTYPE,
        "p": tarfile.FIFOTYPE,
        "c": tarfile.CHRTYPE,
        "b": tarfile.BLKTYPE,
    }[entry.kind]
    member.linkname = _text(entry.target)
    member.devmajor, member.devminor = entry.device
    archive.addfile(member)


class _Exactly(io.RawIOBase):
    """Reads exactly `size` bytes of a file that users may change: the rest is cut, or filled with zeros."""

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        self._file = file
        self.size = size
        self._left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted)
        self._left -= wanted
        return data + bytes(wanted - len(data))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
