# SPDX-License-Identifier: Apache-2.0
"""Sets owner, mode, times and attributes of a file to those of an entry, through a descriptor."""

from __future__ import annotations

import errno
import os

from cellblock.jail.tree.entry import Entry
from cellblock.jail.tree.file_handle import FileHandle
from cellblock.jail.tree.unsupported import UnsupportedMetadata, kind_of


def set_metadata(
    handle: FileHandle,
    entry: Entry,
    unsupported: UnsupportedMetadata = UnsupportedMetadata(),  # noqa: B008
) -> None:
    """Owner, mode, attributes and time of the file that was looked at, of a link the link's own.

    `without`: what the volume was accepted without, which is then left out. Raises NotADirectoryError or
    FileExistsError when it is a file of another type than the entry's.

    In this order: chown(2) drops setuid and capabilities, chmod(2) edits an ACL's mask.
    """
    if handle.kind != entry.kind:
        number = errno.ENOTDIR if entry.kind == "d" else errno.EEXIST
        raise OSError(number, os.strerror(number), entry.path)
    target = handle.magic  # never a name: chmod(2) follows a link that takes the file's place
    with unsupported.accepting("owners", entry.path):
        os.chown(target, entry.uid, entry.gid)
    if entry.kind != "l":
        with unsupported.accepting("modes", entry.path):
            os.chmod(target, entry.mode)  # noqa: PTH101
    for name, value in unsupported.attributes(entry).xattrs:
        with unsupported.accepting(
            kind_of(name), entry.path, f"attribute {name.decode(errors='backslashreplace')}"
        ):
            os.setxattr(target, name, value)
    with unsupported.accepting("times", entry.path):
        os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns))
