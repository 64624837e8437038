# SPDX-License-Identifier: Apache-2.0
"""Opens paths of a jail's tree safely while its users can rearrange it.

A path is followed one directory at a time and never through a symbolic link: users are root in the jail and
could replace a directory by a link to the host's /etc at any moment. The last name is then used through its
directory's descriptor. Paths can come from users too (dpkg's lists, diversions and link targets); one with
`..` in it leads nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys

from cellblock.jail.tree.file_handle import FileHandle, UnreadableError
from cellblock.jail.tree.file_handle import Stamp as Stamp

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_OPEN = 64
"""Directories that stay open: a path may have two thousand, and a process a thousand files."""
_GET_FLAGS, _IMMUTABLE, _APPEND = 0x80086601, 0x10, 0x20
"""FS_IOC_GETFLAGS and two of its flags (linux/fs.h)."""


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
        self._chain: list[tuple[bytes | None, int]] = [(b"", os.open(root, _DIRECTORY))]
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
        """Open the directory `path`: a descriptor (O_PATH) that is valid until the next call.

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
                if error.errno in (errno.ENAMETOOLONG, errno.ESTALE):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
                if isinstance(error, NotADirectoryError) or error.errno == errno.ELOOP:  # a link
                    raise Blocked(b"/".join(names[: number + 1])) from None
                raise
            if number > _MOST_OPEN:
                os.close(self._chain.pop()[1])
            # What is deeper has no name here: it is not found again as a part of another path.
            self._chain.append((names[number] if number < _MOST_OPEN else None, opened))
        self._last = path
        return self._chain[-1][1]

    def at(self, path: bytes) -> tuple[int, bytes]:
        """Split `path` into a descriptor of its parent and its last name. Raises as `folder`."""
        parent, _, name = path.rpartition(b"/")
        _names_of(name)
        return self.folder(parent), name or b"."

    def open_handle(self, path: bytes) -> FileHandle | None:
        """The file at `path`, of a link the link itself; the caller closes it. None: there is none.

        Raises Blocked.
        """
        try:
            parent, name = self.at(path)
        except FileNotFoundError:
            return None
        return FileHandle.at(parent, name)

    def status(self, path: bytes) -> os.stat_result | None:
        """lstat(2); None when there is no such file or directory. Raises Blocked."""
        try:
            parent, name = self.at(path)
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ESTALE):
                return None
            raise

    def open(self, path: bytes) -> int:
        """Open the regular file `path` for reading.

        Raises FileNotFoundError, Blocked, and UnreadableError for what is none.
        """
        handle = self.open_handle(path)
        if handle is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        with handle:
            return handle.open()

    def is_immutable(self, path: bytes) -> bool:
        """Whether not even root may change `path` or its directory (chattr +i and +a; ioctl_iflags(2))."""
        try:
            parent, _ = self.at(path)
            found = [os.open(b".", _FOLDER, dir_fd=parent)]
        except (OSError, Blocked):
            return False  # its directory is still to be made
        try:
            handle = self.open_handle(path)
            if handle is not None:
                with handle, contextlib.suppress(OSError, UnreadableError):
                    # A device is never opened; a link has no flags.
                    is_folder = handle.kind == "d"
                    found.append(
                        os.open(handle.magic, _FOLDER & ~os.O_NOFOLLOW) if is_folder else handle.open()
                    )
            return any(_has_flags(one) for one in found)
        except Blocked:
            return False
        finally:
            for one in found:
                os.close(one)

    def read(self, path: bytes, most: int = 1 << 30) -> bytes | None:
        """The content of a regular file; None when there is none.

        Raises OSError when it has more than `most` bytes, and UnreadableError: what is taken for absent would
        be decided upon, and a file of a terabyte that a user made would fill the memory.
        """
        try:
            handle = self.open_handle(path)
        except Blocked:
            return None
        if handle is None:
            return None
        with handle:
            if handle.kind != "f":
                return None
            descriptor = handle.open()
        with os.fdopen(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            found = file.read(size + 1) if size <= most else b""  # a number is room that is made for it
            if len(found) > size:
                found += file.read(max(0, most - size))  # it grew meanwhile
        if max(size, len(found)) > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), b"/" + path)
        return found

    def names(self, path: bytes) -> list[bytes]:
        """The sorted names in the directory `path`; none when it is none."""
        try:
            descriptor = os.open(b".", _FOLDER, dir_fd=self.folder(path))
        except (FileNotFoundError, Blocked):
            return []
        try:
            return sorted(os.fsencode(name) for name in os.listdir(descriptor))  # noqa: PTH208 - by descriptor
        finally:
            os.close(descriptor)


def _has_flags(descriptor: int) -> bool:
    flags = bytearray(8)
    try:
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
    except OSError:
        return False  # a filesystem without
    return bool(int.from_bytes(flags[:4], sys.byteorder) & (_IMMUTABLE | _APPEND))
