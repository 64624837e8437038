# SPDX-License-Identifier: Apache-2.0
"""Holds a file of a jail's tree by a descriptor, so that what was checked is what is then used.

A name can lead to another file at each call, because users can rearrange the tree. So a file is opened
once, with O_PATH and O_NOFOLLOW: that waits for no FIFO, has no effect on a device and follows no link, and
the type of what the descriptor refers to never changes. Everything else goes through /proc/self/fd/N, which
is that very inode.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import NamedTuple

from cellblock.jail.tree.entry import KINDS, Entry, Kind, Xattrs, kept_xattrs

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20
_MOST_XATTRS = 1 << 20
"""Bytes of extended attributes of one file. An image's have some hundred; xfs takes a gigabyte of a user."""
_GONE = (errno.ENOENT, errno.ENAMETOOLONG, errno.ESTALE)
_OF_USERS = {
    errno.EAGAIN: "a program holds a lease on it",  # fcntl(2), F_SETLEASE
    errno.ENOKEY: "it is encrypted, and its key is not here",  # fscrypt
    errno.ESTALE: "it was removed on another node",
    errno.E2BIG: "it has too many extended attributes",
    errno.ERANGE: "it has too many extended attributes",
}
"""What users can make the reading of a file fail with; any other errno is the filesystem's fault."""


class UnreadableError(Exception):
    """Users made the file one that cannot be read. The text says how."""


class Stamp(NamedTuple):
    """Fields that change when a file's content does: inode, size in bytes, and times in nanoseconds."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @staticmethod
    def of(status: os.stat_result) -> Stamp:
        """Make the stamp of a file's status."""
        return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class FileHandle:
    """A file of any type, held by `descriptor` (O_PATH) until this is closed.

    `status` is that of the moment when it was opened.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        try:
            self.status = os.fstat(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @staticmethod
    def at(parent: int, name: bytes) -> FileHandle | None:
        """The file `name` in the directory `parent`, a link itself and not its target; None: there is none.

        Raises OSError.
        """
        try:
            return FileHandle(os.open(name, _PATH, dir_fd=parent))
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise

    def __enter__(self) -> FileHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)

    @property
    def magic(self) -> bytes:
        """Return a path that refers to this file, even if it is a link and a call follows links."""
        return b"/proc/self/fd/%d" % self.descriptor

    @property
    def kind(self) -> Kind | None:
        """The kind of the file; None for a socket."""
        return KINDS.get(stat.S_IFMT(self.status.st_mode))

    def is_same(self, status: os.stat_result) -> bool:
        """Whether that is the status of this file."""
        return (status.st_dev, status.st_ino) == (self.status.st_dev, self.status.st_ino)

    def now(self) -> os.stat_result:
        """Return the file's status at this moment."""
        return os.fstat(self.descriptor)

    def link(self, folder: int, name: bytes) -> None:
        """Give the file one more name, in the directory `folder`. Raises OSError."""
        os.link(self.magic, name, dst_dir_fd=folder)  # with a descriptor: link(2) alone follows nothing

    def target(self) -> bytes:
        """The text of a symbolic link."""
        return os.readlink(b"", dir_fd=self.descriptor)

    def open(self, flags: int = os.O_RDONLY) -> int:
        """Open the content of a regular file. Raises UnreadableError, also for any other type."""
        if not stat.S_ISREG(self.status.st_mode):
            raise UnreadableError("it is no regular file")
        try:
            # O_NONBLOCK: a lease would be waited for, for 45 seconds each.
            return os.open(self.magic, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            raise _explained(error) from error

    def digest(self, algorithm: str = "sha256", most: int | None = None) -> str:
        """The digest of a regular file's content, of as many bytes as it had when it was opened.

        Empty when it had more than `most`, or has another size by now: users write it, and may never end.
        Raises UnreadableError.
        """
        found = self.digests(algorithm, most=most)
        return found[0] if found else ""

    def digests(self, *algorithms: str, most: int | None = None) -> tuple[str, ...]:
        """Digests of one reading, which are all of the same content; none where `digest` has none."""
        totals = [hashlib.new(algorithm, usedforsecurity=False) for algorithm in algorithms]
        left = self.status.st_size
        if most is not None and left > most:
            return ()
        descriptor = self.open()
        try:
            while data := os.read(descriptor, _CHUNK):
                left -= len(data)
                if left < 0:
                    return ()
                for total in totals:
                    total.update(data)
        finally:
            os.close(descriptor)
        return () if left else tuple(total.hexdigest() for total in totals)

    def xattr_names(self) -> list[bytes]:
        """The names of all its extended attributes. Raises UnreadableError."""
        try:
            return [os.fsencode(name) for name in os.listxattr(self.magic)]
        except OSError as error:
            raise _explained(error) from error

    def xattrs(self) -> Xattrs:
        """Read the extended attributes that the jail preserves. Raises UnreadableError."""
        found: list[tuple[bytes, bytes]] = []
        size = 0
        for name in self.xattr_names():
            try:
                found.append((name, os.getxattr(self.magic, name)))
            except OSError as error:
                if error.errno == errno.ENODATA:  # removed since they were listed
                    continue
                raise _explained(error) from error
            size += len(name) + len(found[-1][1])
            if size > _MOST_XATTRS:
                raise UnreadableError(_OF_USERS[errno.E2BIG])
        return kept_xattrs(found)

    def entry(self, path: bytes, digest: str | None = None) -> Entry | None:
        """Make the file's entry with the path `path`; the content is hashed unless `digest` is known.

        None for a socket, which is no part of a tree. Raises UnreadableError.
        """
        kind, status = self.kind, self.status
        if kind is None:
            return None
        if kind == "f" and digest is None:
            digest = self.digest()
        device = (os.major(status.st_rdev), os.minor(status.st_rdev)) if kind in "cb" else (0, 0)
        return Entry(
            path=path,
            kind=kind,
            mode=stat.S_IMODE(status.st_mode),
            uid=status.st_uid,
            gid=status.st_gid,
            size=status.st_size if kind in "fl" else 0,
            # A directory's time changes with every file that users make in it.
            mtime_ns=0 if kind == "d" else status.st_mtime_ns,
            target=self.target() if kind == "l" else b"",
            device=device,
            xattrs=self.xattrs(),
            digest=digest or "" if kind == "f" else "",
        )


def _explained(error: OSError) -> Exception:
    """The error as users' doing, where it can be that."""
    why = _OF_USERS.get(error.errno or 0)
    return error if why is None else UnreadableError(why)
