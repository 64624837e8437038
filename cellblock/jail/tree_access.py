"""Reaching into a tree that its users may rearrange while we look.

A path is walked one directory at a time, never through a symbolic link: users are root in the jail and
could lay a link to the host's /etc where a directory was a moment ago. What is then done to the last name
goes through the directory's descriptor. Paths come from users too (dpkg's lists, diversions and link targets
are theirs to write): one that has `..` in it leads nowhere.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import sys
from typing import NamedTuple

from cellblock.jail.entry import KINDS, Entry, kept_xattrs

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CHUNK = 1 << 20
_GET_FLAGS, _IMMUTABLE, _APPEND = 0x80086601, 0x10, 0x20
"""FS_IOC_GETFLAGS and two of its flags (linux/fs.h)."""


class Stamp(NamedTuple):
    """What changes when a file's content does: inode, size in bytes, and times in nanoseconds."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @staticmethod
    def of(status: os.stat_result) -> Stamp:
        """That of a file's status."""
        return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Blocked(Exception):
    """`path`, which should be a directory, is something else: nothing is to be found below it."""

    def __init__(self, path: bytes) -> None:
        super().__init__(path)
        self.path = path


def _names_of(path: bytes) -> list[bytes]:
    """The names on the way to `path`. Raises Blocked at one that is no name of a file, as `..`."""
    names = path.split(b"/") if path else []
    for number, name in enumerate(names):
        if name in (b".", b"..") or b"\0" in name:
            raise Blocked(b"/".join(names[: number + 1]))
    return names


class TreeAccess:
    """The tree below `root`, by paths relative to it. Keeps the last directories open; used by one thread."""

    def __init__(self, root: bytes) -> None:
        self.root = root
        self._chain: list[tuple[bytes, int]] = [(b"", os.open(root, _DIRECTORY))]
        self._last: bytes | None = None
        """The path of the end of the chain, when it is that of a whole path: it is asked for many times."""

    def __enter__(self) -> TreeAccess:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every directory."""
        self._last = None
        while self._chain:
            os.close(self._chain.pop()[1])

    def forget(self) -> None:
        """Look anew at every directory from now on: some were replaced."""
        self._last = None
        while len(self._chain) > 1:
            os.close(self._chain.pop()[1])

    def folder(self, path: bytes) -> int:
        """A descriptor (O_PATH) of the directory `path`, valid until the next call.

        Raises FileNotFoundError, or Blocked when something on the way is no directory.
        """
        if path == self._last:
            return self._chain[-1][1]
        self._last = None
        names = _names_of(path)
        common = 0
        while (
            common < len(names)
            and common + 1 < len(self._chain)
            and self._chain[common + 1][0] == names[common]
        ):
            common += 1
        while len(self._chain) > common + 1:
            os.close(self._chain.pop()[1])
        for number in range(common, len(names)):
            try:
                opened = os.open(names[number], _DIRECTORY, dir_fd=self._chain[-1][1])
            except (NotADirectoryError, OSError) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                if error.errno == errno.ENAMETOOLONG:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
                if isinstance(error, NotADirectoryError) or error.errno == errno.ELOOP:  # a link
                    raise Blocked(b"/".join(names[: number + 1])) from None
                raise
            self._chain.append((names[number], opened))
        self._last = path
        return self._chain[-1][1]

    def at(self, path: bytes) -> tuple[int, bytes]:
        """(descriptor of the parent, last name) of `path`. Raises as `folder`."""
        parent, _, name = path.rpartition(b"/")
        _names_of(name)
        return self.folder(parent), name or b"."

    def magic(self, path: bytes) -> bytes:
        """A path for the calls that take no descriptor: the last name of `path` in its opened parent."""
        parent, name = self.at(path)
        return b"/proc/self/fd/%d/%s" % (parent, name)

    def pinned(self, path: bytes) -> int:
        """A descriptor (O_PATH) of `path` itself, of a link not its target; the caller closes it.

        What is done through /proc/self/fd/N is done to this very file, whatever has its name by then:
        chmod(2) by name would follow a link that is put there meanwhile. Raises as `folder`.
        """
        parent, name = self.at(path)
        return os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)

    def status(self, path: bytes) -> os.stat_result | None:
        """lstat(2); None when there is no such file or directory. Raises Blocked."""
        try:
            parent, name = self.at(path)
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise

    def entry(self, path: bytes, status: os.stat_result, digest: str | None = None) -> Entry | None:
        """The entry of an existing file, read now; its content is hashed unless `digest` is known.

        None for a socket, which is no part of a tree, and for a file that is gone meanwhile.
        """
        kind = KINDS.get(stat.S_IFMT(status.st_mode))
        if kind is None:
            return None
        target, device = b"", (0, 0)
        try:
            parent, name = self.at(path)
            if kind == "l":
                target = os.readlink(name, dir_fd=parent)
            elif kind in "cb":
                device = (os.major(status.st_rdev), os.minor(status.st_rdev))
            elif kind == "f" and digest is None:
                digest = self.digest(path)
            magic = b"/proc/self/fd/%d/%s" % (parent, name)
            names = os.listxattr(magic, follow_symlinks=False)
            xattrs = kept_xattrs(
                (os.fsencode(one), os.getxattr(magic, one, follow_symlinks=False)) for one in names
            )
        except FileNotFoundError:
            return None
        return Entry(
            path=path,
            kind=kind,
            mode=stat.S_IMODE(status.st_mode),
            uid=status.st_uid,
            gid=status.st_gid,
            size=status.st_size if kind in "fl" else 0,
            # A directory's time changes with every file that users make in it.
            mtime_ns=0 if kind == "d" else status.st_mtime_ns,
            target=target,
            device=device,
            xattrs=xattrs,
            digest=digest or "" if kind == "f" else "",
        )

    def open(self, path: bytes) -> int:
        """A descriptor to read the regular file `path` from; never follows a link or waits for a fifo."""
        parent, name = self.at(path)
        descriptor = os.open(name, _FILE, dir_fd=parent)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileNotFoundError(path)
        return descriptor

    def is_immutable(self, path: bytes) -> bool:
        """Whether not even root may change `path` or its directory (chattr +i and +a; ioctl_iflags(2))."""
        try:
            parent, name = self.at(path)
        except (FileNotFoundError, Blocked):
            return False  # its directory is still to be made
        status = self.status(path)
        # A device is never opened; a link has no flags.
        has_flags = status is not None and stat.S_IFMT(status.st_mode) in (stat.S_IFREG, stat.S_IFDIR)
        for one in (name, b".") if has_flags else (b".",):
            flags = bytearray(8)
            try:
                descriptor = os.open(one, _FILE, dir_fd=parent)
            except OSError:
                continue
            try:
                fcntl.ioctl(descriptor, _GET_FLAGS, flags)
            except OSError:
                continue  # a filesystem without
            finally:
                os.close(descriptor)
            if int.from_bytes(flags[:4], sys.byteorder) & (_IMMUTABLE | _APPEND):
                return True
        return False

    def digest(self, path: bytes, algorithm: str = "sha256") -> str:
        """The digest of a regular file's content."""
        total = hashlib.new(algorithm, usedforsecurity=False)
        descriptor = self.open(path)
        try:
            while data := os.read(descriptor, _CHUNK):
                total.update(data)
        finally:
            os.close(descriptor)
        return total.hexdigest()

    def read(self, path: bytes, most: int = 1 << 30) -> bytes | None:
        """The content of a regular file; None when there is none.

        Raises OSError when it cannot be read, or has more than `most` bytes: what is taken for absent would
        be decided upon, and a file of a terabyte that a user made would fill the memory.
        """
        try:
            descriptor = self.open(path)
        except (FileNotFoundError, Blocked):
            return None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
                return None
            raise
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            found = file.read(size + 1) if size <= most else b""  # a number is room that is made for it
            if len(found) > size:
                found += file.read(most - size)  # it grew meanwhile
        if max(size, len(found)) > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), b"/" + path)
        return found

    def names(self, path: bytes) -> list[bytes]:
        """The sorted names in the directory `path`; none when it is none."""
        try:
            descriptor = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.folder(path))
        except (FileNotFoundError, Blocked):
            return []
        try:
            return sorted(os.fsencode(name) for name in os.listdir(descriptor))  # noqa: PTH208 - by descriptor
        finally:
            os.close(descriptor)
