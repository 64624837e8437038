# SPDX-License-Identifier: Apache-2.0
"""Creates every new file of an upgrade plan in a staging folder, with its content, owner, mode and times.

This happens before the tree is touched; afterwards an upgrade only renames. A full disk, or an attribute
that the filesystem does not hold, therefore fails while nothing has changed yet.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from cellblock.jail.merge.action_lists import StoredActions
from cellblock.jail.merge.action_order import LIBRARY, rank, sort_libraries, sorted_libraries
from cellblock.jail.merge.change_plan import Action, Plan
from cellblock.jail.tree.elf_needs import needs
from cellblock.jail.tree.entry import Entry
from cellblock.jail.tree.file_handle import FileHandle
from cellblock.jail.tree.metadata import set_metadata
from cellblock.jail.tree.unsupported import UnsupportedMetadata

Fetch = Callable[[int, Entry, bytes], None]
"""Makes the regular file of action N with an entry's content at a path; its metadata is set by the caller."""


Find = Callable[[Entry], int | None]
"""A descriptor to read the content of an entry from, which the caller closes; None: it is not at hand."""


def arranged(plan: Plan, find: Find) -> Sequence[Action]:
    """The actions in their final order; `find` gives the content of a library."""
    if isinstance(plan.actions, StoredActions):
        found = plan.actions.of_step(LIBRARY)
        libraries = [action for _, action in found]
        ordered = sorted_libraries(
            libraries, _wanted(libraries, find), downgrade=plan.operation == "rollback"
        )
        for (number, _), action in zip(found, ordered, strict=True):
            plan.actions.put(number, action)
        return plan.actions
    return sort_libraries(plan.actions, _wanted(plan.actions, find), downgrade=plan.operation == "rollback")


def _wanted(actions: Iterable[Action], find: Find) -> dict[bytes, list[bytes]]:
    """Read which libraries the replaced libraries need, by path."""
    wanted = {}
    for action in actions:
        if rank(action) == LIBRARY and action.after is not None and action.after.kind == "f":
            descriptor = find(action.after)
            if descriptor is not None:
                try:
                    wanted[action.path] = needs(descriptor)
                finally:
                    os.close(descriptor)
    return wanted


def stage(actions: Sequence[Action], folder: Path, fetch: Fetch, unsupported: UnsupportedMetadata) -> None:
    """Make the new file of action N as `folder`/N, or none of what the volume was accepted without.

    Raises OSError and CellblockError.
    """
    folder.mkdir(mode=0o700)
    top = os.fsencode(folder) + b"/"
    leads = {action.link for action in actions if action.link}
    numbers: dict[bytes, int] = {}
    links: list[tuple[int, bytes]] = []
    for number, action in enumerate(actions):
        if action.verb == "metadata":
            _try(action, top + b"tried", unsupported)
        if action.verb not in ("mkdir", "put"):
            continue
        assert action.after is not None
        if action.link:
            links.append((number, action.link))
            continue
        if action.path in leads:
            numbers[action.path] = number
        _make(action.after, top + b"%d" % number, partial(fetch, number), unsupported)
    for number, lead in links:
        if unsupported.lacks(actions[numbers[lead]].after, top + b"%d" % numbers[lead]):
            continue
        os.link(top + b"%d" % numbers[lead], top + b"%d" % number, follow_symlinks=False)


def _make(
    entry: Entry, path: bytes, fetch: Callable[[Entry, bytes], None], unsupported: UnsupportedMetadata
) -> None:
    with unsupported.accepting_kind(entry):
        if entry.kind == "d":
            os.mkdir(path, 0o700)  # noqa: PTH102 - pathlib knows no paths of bytes
        elif entry.kind == "l":
            os.symlink(entry.target, path)  # noqa: PTH211
        elif entry.kind == "p":
            os.mkfifo(path, 0o600)
        elif entry.kind in "cb":
            kind = stat.S_IFCHR if entry.kind == "c" else stat.S_IFBLK
            os.mknod(path, kind | 0o600, os.makedev(*entry.device))
        else:
            fetch(entry, path)
    if not unsupported.lacks(entry, path):
        _set_metadata(path, entry, unsupported)


def _set_metadata(path: bytes, entry: Entry, unsupported: UnsupportedMetadata) -> None:
    """Of a file that was just made. In a rollback it may be a name of one that users have another name of."""
    # The folder is root's alone: its own name is as good as a descriptor.
    with FileHandle(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)) as handle:
        set_metadata(handle, entry, unsupported)


def _try(action: Action, path: bytes, unsupported: UnsupportedMetadata) -> None:
    """Give a file that goes again the attributes that one of the tree is to get: later would be half-way."""
    before, after = action.before, action.after
    assert after is not None
    if not after.xattrs or (before is not None and set(after.xattrs) <= set(before.xattrs)):
        return
    tried = after._replace(kind="d" if after.kind == "d" else "f")
    if tried.kind == "d":
        os.mkdir(path, 0o700)  # noqa: PTH102
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        _set_metadata(path, tried, unsupported)
    finally:
        (os.rmdir if tried.kind == "d" else os.unlink)(path)
