# SPDX-License-Identifier: Apache-2.0
"""Compares a restored tree with the list that was made for its backup, and repairs what restic lost.

Jobs write while a backup runs, so a file in the snapshot can be newer than its line in the list. Where tree
and list differ, `restic ls` therefore decides: it gives the owner, mode, size and time in the snapshot.
Only a file that differs from the snapshot too is a fault of the restore.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cellblock.jail.backup import listing
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.entry import Entry, kept_xattrs, order, shown
from cellblock.jail.tree.file_handle import FileHandle, UnreadableError
from cellblock.jail.tree.metadata import set_metadata
from cellblock.text.rfc3339 import nanoseconds

_BLOCK = 64 << 10
"""Zeros shorter than this are not worth a hole."""
_PUNCH = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE: fallocate(2)
_libc = ctypes.CDLL(None, use_errno=True)

Ls = Callable[[Callable[[dict[str, Any]], None]], None]
"""Tells of each file of the snapshot, as `restic ls --json`."""
Accept = Callable[[bytes], bool]


class Deviation(NamedTuple):
    """A path whose entries in the list and in the restored tree differ; None: there is no such entry."""

    path: bytes
    listed: Entry | None
    found: Entry | None


class _Core(NamedTuple):
    """The metadata of a file that `restic ls` prints; the size only of regular files."""

    kind: str
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Reconciled:
    """`entries` were compared, `mended` put right, `moving` differ because jobs wrote while the backup ran.

    `losses` are sentences about what is still not as it was. `missing` of them are files that are not there.
    """

    entries: int
    mended: int
    moving: int
    losses: tuple[str, ...]
    missing: int


def reconcile(list_file: Path, root: Path, ls: Ls, within: bytes = b"") -> Reconciled:
    """Make the tree at `root` as its snapshot has it, below `within`. Raises CellblockError, OSError."""
    base = os.fsencode(root)
    entries, deviations = _compare(list_file, base, within)
    if not deviations:
        return Reconciled(entries, 0, 0, (), 0)
    cores = _cores(ls, {_mangled(one.path) for one in deviations if _needs_core(one)})
    moving: set[bytes] = set()
    wanted: list[Entry] = []
    unmended: dict[bytes, str] = {}
    with TreeAccess(base) as access:
        for one in deviations:
            right = _right(one, cores.get(_mangled(one.path)), within)
            if right is None or (right.kind == "h" and one.found and not _alike(access, right)):
                moving.add(one.path)
            elif one.found is not None:
                wanted.append(right)
        folders = _Folders(access)
        for entry in wanted:
            try:
                _apply(access, entry, folders)
            except OSError as error:
                unmended[entry.path] = error.strerror or str(error)
            except UnreadableError as error:
                unmended[entry.path] = str(error)
            except Blocked as error:
                unmended[entry.path] = f"{shown(error.path)} is no directory"
        folders.restore_times()
    after = [one for one in _compare(list_file, base, within)[1] if one.path not in moving]
    right_of = {entry.path: entry for entry in wanted}
    losses, missing = [], 0
    for one in after:
        if one.found is not None and one.path in right_of and _same(right_of[one.path], one.found):
            continue
        missing += one.found is None
        why = f" ({unmended[one.path]})" if one.path in unmended else ""
        losses.append(f"{shown(one.path)}: {_difference(right_of.get(one.path, one.listed), one.found)}{why}")
    return Reconciled(entries, len(wanted) - len(losses) + missing, len(moving), tuple(losses), missing)


def _compare(list_file: Path, base: bytes, within: bytes) -> tuple[int, list[Deviation]]:
    count, deviations = 0, []
    inside = _inside(within)
    left = (one for one in listing.read(list_file) if inside(one.path))
    right = (one for one in listing.read_tree(base) if inside(one.path))
    one, other = next(left, None), next(right, None)
    while one or other:
        if other is None or (one is not None and order(one.path) < order(other.path)):
            assert one is not None
            deviations.append(Deviation(one.path, one, None))
            one = next(left, None)
        elif one is None or order(other.path) < order(one.path):
            deviations.append(Deviation(other.path, None, other))
            other = next(right, None)
        else:
            count += 1
            if not _same(one, other):
                deviations.append(Deviation(one.path, one, other))
            one, other = next(left, None), next(right, None)
    return count, deviations


def _inside(within: bytes) -> Accept:
    return lambda path: not within or path == within or path.startswith(within + b"/")


def _same(wanted: Entry, found: Entry) -> bool:
    # Holes that were not there before harm nobody.
    return wanted == found or (not wanted.digest and wanted == found._replace(digest=""))


def _core_of(entry: Entry, kind: str) -> _Core:
    size = entry.size if kind == "f" else 0
    mode = 0 if kind == "l" else entry.mode
    return _Core(kind, mode, entry.uid, entry.gid, size, entry.mtime_ns)


def _needs_core(one: Deviation) -> bool:
    """Whether the two differ in what jobs may have changed since the list was made."""
    if one.listed is None or one.found is None:
        return True
    kinds = one.listed.kind, one.found.kind
    kind = kinds[1] if kinds[0] == "h" else kinds[0]
    other = kinds[0] if kinds[1] == "h" else kinds[1]
    return kind != other or _core_of(one.listed, kind) != _core_of(one.found, kind)


def _right(one: Deviation, core: _Core | None, within: bytes) -> Entry | None:
    """Return the entry that the file should have; None if it is right because jobs wrote it meanwhile."""
    listed, found = one.listed, one.found
    if listed is None:
        return None  # made after the list was; restic restores nothing that is not in the snapshot
    if found is None:
        return None if core is None else listed
    if not _needs_core(one):
        outside = listed.kind == "h" and not _inside(within)(listed.target)
        return None if outside and found.kind != "h" else listed
    if core is None or _core_of(found, core.kind if found.kind == "h" else found.kind) == core:
        return None
    if core == _core_of(listed, core.kind):
        return listed
    mode = found.mode if core.kind == "l" else core.mode
    return found._replace(mode=mode, uid=core.uid, gid=core.gid, mtime_ns=core.mtime_ns)


_TYPES = {
    "dir": "d",
    "file": "f",
    "symlink": "l",
    "fifo": "p",
    "chardev": "c",
    "dev": "b",
}
# Go's os.FileMode: the permission bits are as everywhere, the others are not.
_GO_BITS = ((1 << 23, stat.S_ISUID), (1 << 22, stat.S_ISGID), (1 << 20, stat.S_ISVTX))


def _cores(ls: Ls, paths: set[bytes]) -> dict[bytes, _Core]:
    found: dict[bytes, _Core] = {}
    if not paths:
        return found

    def node(record: dict[str, Any]) -> None:
        path = record["path"].encode("utf-8", "surrogateescape")
        path = path.removeprefix(b"/root").removeprefix(b"/")
        kind = _TYPES.get(record["type"])
        if path in paths and kind and record["path"].startswith("/root"):
            number = int(record["mode"])
            mode = number & 0o777 | sum(bit for go, bit in _GO_BITS if number & go)
            found[path] = _Core(
                kind,
                0 if kind == "l" else mode,
                record.get("uid", 0),
                record.get("gid", 0),
                record.get("size", 0) if kind == "f" else 0,
                nanoseconds(record["mtime"]),
            )

    ls(node)
    return found


def _mangled(path: bytes) -> bytes:
    """Convert a path as restic writes it into JSON: with U+FFFD for each byte that is not UTF-8."""
    try:
        path.decode("utf-8")
    except UnicodeDecodeError:
        text = path.decode("utf-8", "surrogateescape")
        return re.sub("[\udc80-\udcff]", "�", text).encode("utf-8")
    return path


def _alike(access: TreeAccess, link: Entry) -> bool:
    """Whether two names that were one file when they were listed still have the same content.

    A job may have replaced one of them before both were stored: then they are two files by now.
    """
    try:
        one, other = access.open_handle(link.path), access.open_handle(link.target)
    except Blocked:
        return False
    try:
        return one is not None and other is not None and _alike_looks(one, other)
    except UnreadableError:
        return False
    finally:
        for handle in (one, other):
            if handle is not None:
                handle.close()


def _alike_looks(one: FileHandle, other: FileHandle) -> bool:
    if one.kind != other.kind:
        return False
    if one.kind == "l":
        return one.target() == other.target()
    if one.kind == "f":
        return one.status.st_size == other.status.st_size and one.digest() == other.digest()
    return one.status.st_rdev == other.status.st_rdev


class _Folders:
    """Remembers the times of the folders that mending changes."""

    def __init__(self, access: TreeAccess) -> None:
        self._access = access
        self._times: dict[bytes, int] = {}

    def remember(self, path: bytes) -> None:
        folder = path.rpartition(b"/")[0]
        if folder not in self._times:
            self._times[folder] = os.fstat(self._access.folder(folder)).st_mtime_ns

    def restore_times(self) -> None:
        for folder, time in self._times.items():
            os.utime(b"/proc/self/fd/%d" % self._access.folder(folder), ns=(time, time))


def _apply(access: TreeAccess, entry: Entry, folders: _Folders) -> None:
    """Make a file as `entry` says. Raises OSError and Blocked.

    The list and the snapshot are of two moments, between which users may have put a link to the host's /etc
    where a directory was: what the list says below it must not be looked for there.
    """
    if entry.kind == "h":
        folders.remember(entry.path)
        target, name = access.at(entry.target)
        with _held(target) as folder:
            _replace(
                access,
                entry.path,
                lambda parent, new: os.link(
                    name, new, src_dir_fd=folder, dst_dir_fd=parent, follow_symlinks=False
                ),
            )
        return
    with _opened_handle(access, entry.path) as handle:
        as_it_is = entry.kind != "l" or (handle.kind == "l" and handle.target() == entry.target)
    if not as_it_is:
        folders.remember(entry.path)
        _replace(access, entry.path, lambda parent, new: os.symlink(entry.target, new, dir_fd=parent))
    with _opened_handle(access, entry.path) as handle:
        present = kept_xattrs((name, b"") for name in handle.xattr_names())
        for attribute in {name for name, _ in present} - {name for name, _ in entry.xattrs}:
            with contextlib.suppress(OSError):
                os.removexattr(handle.magic, attribute)
        if entry.digest == listing.SPARSE and handle.kind == "f":
            _punch_file(handle)
        set_metadata(handle, entry)


@contextlib.contextmanager
def _opened_handle(access: TreeAccess, path: bytes) -> Iterator[FileHandle]:
    handle = access.open_handle(path)
    if handle is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    with handle:
        yield handle


@contextlib.contextmanager
def _held(descriptor: int) -> Iterator[int]:
    """The descriptor as one's own, for as long as the block lasts."""
    own = os.dup(descriptor)
    try:
        yield own
    finally:
        os.close(own)


def _replace(access: TreeAccess, path: bytes, make: Callable[[int, bytes], None]) -> None:
    parent, name = access.at(path)
    new = b".cellblock-" + secrets.token_hex(8).encode()
    make(parent, new)
    os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
    with contextlib.suppress(FileNotFoundError):  # rename(2) of two names of one file does nothing
        os.unlink(new, dir_fd=parent)


def _punch_file(handle: FileHandle) -> None:
    """Give back the blocks of a file that hold zeros only: fallocate(2). Raises OSError."""
    # A file of mode 0 too: we are root.
    descriptor = handle.open(os.O_RDWR)
    try:
        start, zeros = 0, bytes(_BLOCK)
        for offset in _blocks(descriptor):
            data = os.pread(descriptor, _BLOCK, offset)
            if data == zeros[: len(data)]:
                continue
            _punch(descriptor, start, offset)
            start = offset + len(data)
        _punch(descriptor, start, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _blocks(descriptor: int) -> Iterator[int]:
    return iter(range(0, os.fstat(descriptor).st_size, _BLOCK))


def _punch(descriptor: int, start: int, end: int) -> None:
    if end <= start:
        return
    offset, length = ctypes.c_int64(start), ctypes.c_int64(end - start)
    if _libc.fallocate64(descriptor, _PUNCH, offset, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _difference(wanted: Entry | None, found: Entry | None) -> str:
    if found is None or wanted is None:
        return "is missing"
    words = {"digest": "its holes take space", "target": "points elsewhere, or is a file of its own"}
    return ", ".join(
        words.get(name) or f"{name} is {getattr(found, name)}, should be {getattr(wanted, name)}"
        for name in Entry._fields
        if getattr(wanted, name) != getattr(found, name)
    )
