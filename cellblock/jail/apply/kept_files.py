# SPDX-License-Identifier: Apache-2.0
"""Finds the files that an earlier transaction replaced and kept, so that a rollback can restore them.

They lie in `history/NUMBER/kept/`. Each is examined again before use: users may have other names (hard
links) of a kept file and may have written to it since, and a restored volume can have links in that folder.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import NamedTuple

from cellblock.jail.apply.step import gives_rights
from cellblock.jail.merge.action_lists import ActionIndex
from cellblock.jail.tree.databases import MOST, is_database
from cellblock.jail.tree.entry import Entry, shown
from cellblock.jail.tree.file_handle import FileHandle, UnreadableError
from cellblock.jail.volume.history import Done

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20


class NotKeptError(Exception):
    """A file was not kept as it was: users had exchanged it, or write to it. The text names the file."""


class DamagedError(NotKeptError):
    """A file that was kept is gone or empty, and users cannot have done that."""


class KeptFile(NamedTuple):
    """A kept file that was checked. `is_own`: it was at the very path; else it only has the same content."""

    handle: FileHandle
    is_own: bool


class KeptFiles:
    """The regular files in kept/ of the transaction `done`; of any other type there is none."""

    def __init__(self, done: Done, numbers: ActionIndex) -> None:
        self._numbers = numbers
        self._skipped = done.skipped_paths()
        self._folder = os.open(done.folder / "kept", _FOLDER)

    def __enter__(self) -> KeptFiles:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._folder)

    def usable(self, entry: Entry) -> KeptFile:
        """Open the kept file that the file of `entry` can be made of. Raises NotKeptError."""
        number = self._numbers.of_path(entry.path)
        handle = None if number is None else self._at(number)
        if number is not None and (handle is None or handle.kind == "f"):
            self._refuse_damaged(number, handle, entry)
        if handle is not None:
            if handle.kind == "f":
                return _checked(KeptFile(handle, is_own=True), _is_usable, entry)
            handle.close()
        other = self._other(entry)
        if other is None:
            raise _not_kept(entry)
        return _checked(KeptFile(other, is_own=False), _has_content, entry)

    def _refuse_damaged(self, number: int, handle: FileHandle | None, entry: Entry) -> None:
        """Close `handle`, and raise DamagedError, when the file of root's that was kept is gone or empty.

        Users cannot do that to a file of root's: they take and exchange files of their own alone. A file that
        was exchanged during the upgrade is in the upgrade's list of what it skipped. A file of another type
        is what users had put there, and an older Cellblock kept: a conflict, not damage.
        """
        if handle is not None and (handle.status.st_size or not entry.size):
            return
        if entry.uid or entry.path in self._skipped or self._numbers.of_taken(entry.path) is None:
            return
        what = "is missing"
        if handle is not None:
            handle.close()
            what = f"is empty; it had {entry.size} bytes"
        raise DamagedError(f"kept/{number}, the old {shown(entry.path)}, {what}")

    def find(self, entry: Entry) -> int | None:
        """Open the kept content of `entry`: a descriptor that the caller closes, or None."""
        handle = self._own(entry) or self._other(entry)
        if handle is None:
            return None
        with handle:
            try:
                return handle.open()
            except UnreadableError:
                return None

    def make(self, entry: Entry, path: bytes) -> None:
        """Make the file of `entry` at `path`, a new name in a folder of root's. Raises NotKeptError.

        What is linked or copied is the very file that was checked.
        """
        kept = self.usable(entry)
        with kept.handle:
            # A name of the very file that was there, if it can be: it has all attributes and takes no space.
            # The other kind is beside a file that users keep: that one has an owner and a mode of its own.
            if not (kept.is_own and _link(kept.handle, path)):
                _copy(kept.handle, path)

    def _own(self, entry: Entry) -> FileHandle | None:
        """Open the kept file that was at the entry's path; the caller closes it."""
        return self._open(self._numbers.of_path(entry.path))

    def _other(self, entry: Entry) -> FileHandle | None:
        """Open another kept file with the entry's content; the caller closes it."""
        return self._open(self._numbers.of_content(entry.digest)) if entry.digest else None

    def _at(self, number: int) -> FileHandle | None:
        return FileHandle.at(self._folder, b"%d" % number)

    def _open(self, number: int | None) -> FileHandle | None:
        handle = None if number is None else self._at(number)
        if handle is None or handle.kind == "f":
            return handle
        handle.close()
        return None


def _checked(kept: KeptFile, check: Callable[[FileHandle, Entry], bool], entry: Entry) -> KeptFile:
    """Return the file if it passes the check; otherwise close it and raise NotKeptError."""
    try:
        if check(kept.handle, entry):
            return kept
        raise _not_kept(entry)
    except BaseException:
        kept.handle.close()
        raise


def _not_kept(entry: Entry) -> NotKeptError:
    return NotKeptError(f"the old {shown(entry.path)} is not in it as it was")


def _is_usable(handle: FileHandle, entry: Entry) -> bool:
    if is_database(entry.path) and handle.status.st_size > MOST:
        return False  # it is read into memory
    return not gives_rights(handle, entry) or _has_content(handle, entry)


def _has_content(handle: FileHandle, entry: Entry) -> bool:
    if handle.status.st_size != entry.size:
        return False
    try:
        return handle.digest() == entry.digest
    except UnreadableError:
        return False


def _link(handle: FileHandle, path: bytes) -> bool:
    folder, name = os.path.split(path)
    descriptor = os.open(folder, _FOLDER)
    try:
        handle.link(descriptor, name)
    except OSError as error:
        if error.errno != errno.EMLINK:  # users gave it as many names as a file can have
            raise
        return False
    finally:
        os.close(descriptor)
    return True


def _copy(handle: FileHandle, path: bytes) -> None:
    """Copy as many bytes as the file had when it was examined: users may append to it without end."""
    left = handle.status.st_size
    with os.fdopen(handle.open(), "rb") as source, open(path, "xb") as file:  # noqa: PTH123
        while data := source.read(min(_CHUNK, left)):
            file.write(data)
            left -= len(data)
