# SPDX-License-Identifier: Apache-2.0
"""Calls renameat2(2): exchanges two names at once, or renames without replacing, where the filesystem can."""

from __future__ import annotations

import ctypes
import errno
import os
import stat

_NOREPLACE, _EXCHANGE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


def exchange(one_parent: int, one: bytes, other_parent: int, other: bytes) -> bool:
    """Swap two names; False where kernel, library or filesystem (NFS, for one) cannot. Raises OSError."""
    return _rename(one_parent, one, other_parent, other, _EXCHANGE)


def move(parent: int, name: bytes, to: int, new: bytes) -> None:
    """rename(2) of one file, and of none that has the new name. Raises FileExistsError and OSError.

    Where the filesystem cannot do that at once (NFS), an empty directory may be renamed over.
    """
    if _rename(parent, name, to, new, _NOREPLACE):
        return
    if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        os.rename(name, new, src_dir_fd=parent, dst_dir_fd=to)
    else:
        os.link(name, new, src_dir_fd=parent, dst_dir_fd=to, follow_symlinks=False)
        os.unlink(name, dir_fd=parent)


def _rename(parent: int, name: bytes, to: int, new: bytes, flags: int) -> bool:
    call = getattr(_libc, "renameat2", None)
    if call is None:
        return False
    if call(parent, name, to, new, ctypes.c_uint(flags)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), os.fsdecode(new))
