# SPDX-License-Identifier: Apache-2.0
"""Recognises changes of the image's files that somebody must have intended: an owner, a mode, a removal.

comparison.py asks, to tell damage from them. No fault of a disk makes such a change, so a repair leaves it
unless it is asked to undo it. Changed content is different: a failing disk changes that, too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from cellblock.jail.merge.change_plan import Action
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.entry import Entry
from cellblock.jail.tree.manifest_index import ManifestIndex
from cellblock.jail.tree.tree_check import Difference

_SET = Difference.MODE | Difference.OWNER
"""What chmod(1) and chown(1) set; both may change attributes as well (capabilities(7), acl(5))."""


class IntendedChanges:
    """Tells choices from damage; `index` is of the image's manifest."""

    def __init__(self, index: ManifestIndex) -> None:
        self._index = index
        self._last: tuple[bytes, bool] = (b"", False)

    def made(self, entry: Entry, now: Entry | None, difference: Difference, access: TreeAccess) -> bool:
        """Whether users chose that the tree has `now` in the place of `entry`."""
        if difference == Difference.MISSING:
            return self._removed(entry.path, access)
        if now is None or difference & ~(_SET | Difference.ATTRIBUTES):
            return False
        # Attributes that are gone, and nothing else, are what a copy without them leaves.
        return bool(difference & _SET) or {name for name, _ in entry.xattrs} <= {
            name for name, _ in now.xattrs
        }

    def _removed(self, path: bytes, access: TreeAccess) -> bool:
        """Whether `path` was taken away by a call, which leaves another time at its directory.

        A filesystem that was mended and a restore that was cut off leave the directory's time.
        """
        parent = path.rpartition(b"/")[0]
        if parent != self._last[0] or not parent:
            self._last = (parent, self._was_changed(parent, access))
        return self._last[1]

    def _was_changed(self, folder: bytes, access: TreeAccess) -> bool:
        while True:
            try:
                status = access.status(folder)
            except Blocked:
                return False  # something else is in the place of a directory above it
            if status is not None:
                break
            if not folder:
                return False
            folder = folder.rpartition(b"/")[0]
        entry = self._index.entry(folder)
        return stat.S_ISDIR(status.st_mode) and (entry is None or entry.mtime_ns != status.st_mtime_ns)


def give_back_times(actions: Iterable[Action], root: bytes, index: ManifestIndex) -> None:
    """Give the directories in which a repair made files the image's times again.

    What else is missing there, and too much for one repair, would count as removed by users.
    """
    folders = {action.path.rpartition(b"/")[0] for action in actions if action.before is None}
    folders |= {action.path for action in actions if action.verb == "mkdir"}
    with TreeAccess(root) as access:
        for folder in folders:
            entry = index.entry(folder)
            if entry is None or entry.kind != "d":
                continue
            try:
                os.utime(b"/proc/self/fd/%d" % access.folder(folder), ns=(entry.mtime_ns, entry.mtime_ns))
            except (OSError, Blocked):
                continue  # users put something else there just now, or may not be given times
