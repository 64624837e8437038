"""Gives a file the metadata of an entry, exactly."""

from __future__ import annotations

import os

from cellblock.jail.entry import Entry
from cellblock.jail.losses import Without, kind_of


def set_metadata(target: bytes | int, entry: Entry, without: Without = Without()) -> None:  # noqa: B008
    """Owner, mode, attributes and time of a path (a link itself, never its target) or descriptor (O_PATH).

    `without`: what the volume was accepted without, which is then left out.

    In this order: chown(2) drops setuid and capabilities, chmod(2) edits an ACL's mask. A path only where
    nobody else can rename: chmod(2) follows a link that takes the file's place.
    """
    follow = isinstance(target, int)
    if isinstance(target, int):
        target = b"/proc/self/fd/%d" % target  # leads to the file itself, also where that is a link
    with without.accepting("owners", entry.path):
        os.chown(target, entry.uid, entry.gid, follow_symlinks=follow)
    if entry.kind != "l":
        with without.accepting("modes", entry.path):
            os.chmod(target, entry.mode)  # noqa: PTH101
    for name, value in without.attributes(entry).xattrs:
        with without.accepting(
            kind_of(name), entry.path, f"attribute {name.decode(errors='backslashreplace')}"
        ):
            os.setxattr(target, name, value, follow_symlinks=follow)
    with without.accepting("times", entry.path):
        os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=follow)
