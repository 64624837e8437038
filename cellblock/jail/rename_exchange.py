"""renameat2(2): swap two names at once, where the filesystem can."""

from __future__ import annotations

import ctypes
import errno
import os

_RENAME_EXCHANGE = 2

_libc = ctypes.CDLL(None, use_errno=True)


def exchange(one_parent: int, one: bytes, other_parent: int, other: bytes) -> bool:
    """Swap two names; False where kernel, library or filesystem (NFS, for one) cannot. Raises OSError."""
    call = getattr(_libc, "renameat2", None)
    if call is None:
        return False
    if call(one_parent, one, other_parent, other, ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), os.fsdecode(other))
