# SPDX-License-Identifier: Apache-2.0
"""Refuses commands that need root, and prints the command to type: newcomers forget sudo first."""

from __future__ import annotations

import errno
import os

from cellblock.errors import CellblockError

AS_ROOT = "run this as root (sudo)"


def require_root(why: str) -> None:
    """Raise CellblockError with the reason `why`, unless this process is root's."""
    if os.geteuid() != 0:
        raise CellblockError(why, hint=AS_ROOT)


def needs_root(error: OSError) -> bool:
    """Whether a call was refused that would not have been refused to root."""
    return error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0
