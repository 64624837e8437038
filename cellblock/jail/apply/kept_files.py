# SPDX-License-Identifier: Apache-2.0
"""Finds the files that an earlier transaction replaced and kept, so that a rollback can restore them.

They lie in `history/NUMBER/kept/`. Each is examined again before use: users may have other names (hard
links) of a kept file and may have written to it since, and a restored volume can have links in that folder.
"""

from __future__ import annotations

import errno
import os

from cellblock.jail.apply.step import gives_rights
from cellblock.jail.merge.action import Action
from cellblock.jail.merge.action_lists import ActionIndex
from cellblock.jail.tree.databases import MOST, is_database
from cellblock.jail.tree.entry import Entry, shown
from cellblock.jail.tree.file_handle import FileHandle, UnreadableError
from cellblock.jail.volume.history import Done

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20


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

    def has(self, action: Action) -> bool:
        """Whether the new file of an action of the rollback can be made of what was kept."""
        entry = action.after
        if action.verb != "put" or entry is None or entry.kind != "f":
            return True  # it needs none
        handle = self.own(entry)
        if handle is not None:
            with handle:
                return _is_usable(handle, entry)
        handle = self._other(entry)
        if handle is None:
            return False
        with handle:
            return _has_content(handle, entry)

    def fault(self, action: Action) -> str:
        """Say what damaged the kept file that an action of the rollback needs; empty when nothing did.

        A file of root's that is not there or has lost its content was not taken by users, who can do that to
        files of their own alone. Those of an exchange are in the upgrade's list of what it skipped.
        """
        entry = action.after
        if action.verb != "put" or entry is None or entry.kind != "f" or entry.uid:
            return ""
        if action.path in self._skipped:
            return ""
        number = self._numbers.of_taken(entry.path)
        if number is None:
            return ""
        handle = self._at(number)
        if handle is None:
            return f"kept/{number}, the old {shown(entry.path)}, is missing"
        with handle:
            # Of another type is what users had put there, and an older Cellblock kept: a conflict.
            if handle.kind == "f" and entry.size and not handle.status.st_size:
                return f"kept/{number}, the old {shown(entry.path)}, is empty; it had {entry.size} bytes"
        return ""

    def find(self, entry: Entry) -> int | None:
        """Open the kept content of `entry`: a descriptor that the caller closes, or None."""
        handle = self.own(entry) or self._other(entry)
        if handle is None:
            return None
        with handle:
            try:
                return handle.open()
            except UnreadableError:
                return None

    def make(self, entry: Entry, path: bytes) -> bool:
        """Make the file of `entry` at `path`, a new name in a folder of root's; False: it was not kept."""
        handle = self.own(entry)
        if handle is not None:
            with handle:
                # A name of the very file that was there: with all its attributes, and no space needed.
                if not _link(handle, path):
                    _copy(handle, path)
            return True
        handle = self._other(entry)
        if handle is None:
            return False
        with handle:
            # Beside a file that users keep. No name of that one, which has an owner and a mode of its own.
            _copy(handle, path)
        return True

    def own(self, entry: Entry) -> FileHandle | None:
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
