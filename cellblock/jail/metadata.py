"""Gives a file the metadata of an entry, exactly."""

from __future__ import annotations

import errno
import os

from cellblock.errors import CellblockError
from cellblock.jail.entry import Entry, shown
from cellblock.jail.losses import Without


def set_metadata(target: bytes | int, entry: Entry, without: Without = Without()) -> None:  # noqa: B008
    """Owner, mode, attributes and time of a path (a link itself, never its target) or descriptor (O_PATH).

    `without`: what the volume was accepted without, which is then left out.

    In this order: chown(2) drops setuid and capabilities, chmod(2) edits an ACL's mask. A path only where
    nobody else can rename: chmod(2) follows a link that takes the file's place.
    """
    follow = isinstance(target, int)
    if isinstance(target, int):
        target = b"/proc/self/fd/%d" % target  # leads to the file itself, also where that is a link
    with without.accepting("owners"):
        os.chown(target, entry.uid, entry.gid, follow_symlinks=follow)
    if entry.kind != "l":
        with without.accepting("modes"):
            os.chmod(target, entry.mode)  # noqa: PTH101
    for name, value in without.attributes(entry).xattrs:
        try:
            os.setxattr(target, name, value, follow_symlinks=follow)
        except OSError as error:
            if error.errno in (errno.ENOTSUP, errno.EPERM, errno.E2BIG):
                text = name.decode(errors="replace")
                raise CellblockError(
                    f"the volume's filesystem cannot hold the attribute {text} of {shown(entry.path)}: "
                    f"{error.strerror}",
                    hint="use a filesystem with extended attributes (ext4, xfs, btrfs; NFS from 4.2 on)",
                ) from None
            raise
    with without.accepting("times"):
        os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=follow)
