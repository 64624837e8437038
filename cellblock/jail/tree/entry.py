# SPDX-License-Identifier: Apache-2.0
"""Defines one entry of a file tree: everything that the jail preserves of a file, except its content."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from typing import Literal, NamedTuple

from cellblock.text.printable import shown as shown

Kind = Literal["d", "f", "l", "p", "c", "b", "h"]
"""Directory, regular file, symbolic link, fifo, character device, block device, hard link."""

KINDS: dict[int, Kind] = {
    stat.S_IFDIR: "d",
    stat.S_IFREG: "f",
    stat.S_IFLNK: "l",
    stat.S_IFIFO: "p",
    stat.S_IFCHR: "c",
    stat.S_IFBLK: "b",
}
"""By file type as stat(2) has it. A socket has none: it means something only to who listens on it."""

Xattrs = tuple[tuple[bytes, bytes], ...]

# Names that belong to the machine a tree lies on and not to the tree: overlayfs keeps its own notes in
# the first, SELinux labels by the policy of the running system, IMA and EVM sign for one machine's key, and
# an NFS client shows owner and mode of every file as an ACL of the server's kind, which cannot be removed,
# and xfs shows each system.posix_acl_* once more in the form in which it keeps it.
_OF_THE_MACHINE = (
    b"trusted.overlay.",
    b"security.selinux",
    b"security.ima",
    b"security.evm",
    b"system.nfs4_acl",
    b"system.nfs4_dacl",
    b"system.nfs4_sacl",
    b"trusted.SGI_ACL_",
)


class Entry(NamedTuple):
    """A file's metadata. Paths are bytes, relative to the tree's root, which itself is `b""`.

    `target` is a symbolic link's text, or for a hard link the path (first in order) it is another name
    of; a hard link repeats the metadata of that file. `digest` is the SHA-256 of a regular file's
    content in hexadecimal, empty while unknown.
    """

    path: bytes
    kind: Kind
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    target: bytes = b""
    device: tuple[int, int] = (0, 0)
    xattrs: Xattrs = ()
    digest: str = ""


def order(path: bytes) -> bytes:
    """Sort key of paths: a directory comes right before its content, as in a sorted walk.

    Two trees sorted so can be compared by reading both once, side by side.
    """
    return path.replace(b"/", b"\0")


def kept_xattrs(xattrs: Iterable[tuple[bytes, bytes]]) -> Xattrs:
    """The extended attributes that belong to a tree, sorted by name."""
    return tuple(sorted(pair for pair in xattrs if not pair[0].startswith(_OF_THE_MACHINE)))
