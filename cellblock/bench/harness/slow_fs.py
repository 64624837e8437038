# SPDX-License-Identifier: Apache-2.0
"""Mounts a directory through FUSE so that each call is delayed, or counted; slow_fs.c has the file system.

It stands for a slow shared volume.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cellblock.errors import CellblockError

_SOURCE = Path(__file__).with_name("slow_fs.c")


@contextmanager
def slow_filesystem(folder: Path, *, latency_us: int = 1000, lossy: bool = False) -> Iterator[Path]:
    """A mount point below `folder` for the time of the block.

    With `lossy` it holds no owners, attributes, links or devices. Raises CellblockError where FUSE or the
    compiler is missing.
    """
    place = folder / "mount"
    place.mkdir()
    variables = {"SLOW_FS_US": str(latency_us), **({"SLOW_FS_LOSSY": "1"} if lossy else {})}
    with _mounted(folder, place, variables, "allow_other,max_threads=128,max_idle_threads=128"):
        yield place


@contextmanager
def counting_filesystem(folder: Path, place: Path) -> Iterator[Callable[[], int]]:
    """Mounts a directory below `folder` at `place`; gives what tells how many calls there were.

    The kernel remembers for a second what it looked up; an NFS client does for 3 to 60 (nfs(5), acregmin).
    Raises CellblockError as `slow_filesystem` does.
    """
    folder.mkdir()
    file = folder / "count"
    options = "allow_other,suid,dev,kernel_cache,entry_timeout=1,attr_timeout=1"
    with _mounted(folder, place, {"SLOW_FS_US": "0", "SLOW_FS_COUNT": str(file)}, options):
        yield lambda: int.from_bytes(file.read_bytes(), sys.byteorder)


@contextmanager
def _mounted(folder: Path, place: Path, variables: dict[str, str], options: str) -> Iterator[None]:
    program, store = folder / "slow_fs", folder / "store"
    flags = ["-D_FILE_OFFSET_BITS=64", "-I/usr/include/fuse3"]
    command = ["gcc", "-std=gnu11", "-O2", *flags, "-o", str(program), str(_SOURCE), "-lfuse3", "-lpthread"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise CellblockError("gcc is not here", hint="apt-get install gcc libfuse3-dev fuse3") from None
    if done.returncode:
        raise CellblockError(
            f"cannot compile {_SOURCE.name}: {done.stderr.strip()[:500]}",
            hint="apt-get install libfuse3-dev fuse3",
        )
    store.mkdir()
    mounted = subprocess.run(
        [str(program), str(store), str(place), "-o", options],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        raise CellblockError(
            f"cannot mount {place}: {mounted.stderr.strip()}", hint="FUSE needs /dev/fuse, and root or fuse3"
        )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
