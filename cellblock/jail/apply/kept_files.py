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
from cellblock.jail.tree.entry import Entry
from cellblock.jail.tree.look import Look, UnreadableError
from cellblock.jail.volume.history import Done

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20


class KeptFiles:
    """The regular files in kept/ of the transaction `done`; of any other type there is none."""

    def __init__(self, done: Done, numbers: ActionIndex) -> None:
        self._numbers = numbers
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
        look = self.own(entry)
        if look is not None:
            with look:
                return _is_usable(look, entry)
        look = self._other(entry)
        if look is None:
            return False
        with look:
            return _has_content(look, entry)

    def find(self, entry: Entry) -> int | None:
        """Open the kept content of `entry`: a descriptor that the caller closes, or None."""
        look = self.own(entry) or self._other(entry)
        if look is None:
            return None
        with look:
            try:
                return look.open()
            except UnreadableError:
                return None

    def make(self, entry: Entry, path: bytes) -> bool:
        """Make the file of `entry` at `path`, a new name in a folder of root's; False: it was not kept."""
        look = self.own(entry)
        if look is not None:
            with look:
                # A name of the very file that was there: with all its attributes, and no space needed.
                if not _link(look, path):
                    _copy(look, path)
            return True
        look = self._other(entry)
        if look is None:
            return False
        with look:
            # Beside a file that users keep. No name of that one, which has an owner and a mode of its own.
            _copy(look, path)
        return True

    def own(self, entry: Entry) -> Look | None:
        """Open the kept file that was at the entry's path; the caller closes it."""
        return self._look(self._numbers.of_path(entry.path))

    def _other(self, entry: Entry) -> Look | None:
        """Open another kept file with the entry's content; the caller closes it."""
        return self._look(self._numbers.of_content(entry.digest)) if entry.digest else None

    def _look(self, number: int | None) -> Look | None:
        look = None if number is None else Look.at(self._folder, b"%d" % number)
        if look is None or look.kind == "f":
            return look
        look.close()
        return None


def _is_usable(look: Look, entry: Entry) -> bool:
    if is_database(entry.path) and look.status.st_size > MOST:
        return False  # it is read into memory
    return not gives_rights(look, entry) or _has_content(look, entry)


def _has_content(look: Look, entry: Entry) -> bool:
    if look.status.st_size != entry.size:
        return False
    try:
        return look.digest() == entry.digest
    except UnreadableError:
        return False


def _link(look: Look, path: bytes) -> bool:
    folder, name = os.path.split(path)
    descriptor = os.open(folder, _FOLDER)
    try:
        look.link(descriptor, name)
    except OSError as error:
        if error.errno != errno.EMLINK:  # users gave it as many names as a file can have
            raise
        return False
    finally:
        os.close(descriptor)
    return True


def _copy(look: Look, path: bytes) -> None:
    """Copy as many bytes as the file had when it was examined: users may append to it without end."""
    left = look.status.st_size
    with os.fdopen(look.open(), "rb") as source, open(path, "xb") as file:  # noqa: PTH123
        while data := source.read(min(_CHUNK, left)):
            file.write(data)
            left -= len(data)
