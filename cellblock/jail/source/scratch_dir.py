# SPDX-License-Identifier: Apache-2.0
"""Makes a temporary folder off the volume for reading a source; the next run cleans up after a killed one.

podman counts the mounts of an image, and a mount stays when its process is killed. So the name of the
mounted image is written into a folder: a writer uses its staging folder on the volume, which the next
writer cleans up. A plan only reads and has no staging folder; it makes this one in /var/tmp, and holds a
lock on it. A folder whose lock is free belongs to a killed process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cellblock.jail.source.image import NOTE, release
from cellblock.jail.source.known_digests import records_folder

_LOCK = "lock"
_YOUNG_S = 10.0


@contextmanager
def scratch_dir(prefix: str) -> Iterator[Path]:
    """Make a folder that only root can enter, removed at the end. First remove folders of killed runs."""
    place = records_folder()
    for leftover in sorted(place.glob(f"{prefix}*")):
        _remove(leftover)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(os.fsencode(folder))
        os.close(lock)


def _remove(leftover: Path) -> None:
    """Release and remove the folder, if it is ours and nobody holds its lock."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, BlockingIOError):
        status = leftover.lstat()
        # Anybody may make a folder of that name in /var/tmp; one that is this young may have no lock yet.
        is_ours = status.st_uid == os.geteuid() and not status.st_mode & 0o077
        if not stat.S_ISDIR(status.st_mode) or not is_ours or time.time() - status.st_mtime < _YOUNG_S:
            return
        lock = os.open(leftover / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            release(leftover / NOTE)
            shutil.rmtree(os.fsencode(leftover))
        finally:
            os.close(lock)
