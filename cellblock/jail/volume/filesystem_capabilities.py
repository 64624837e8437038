# SPDX-License-Identifier: Apache-2.0
"""Finds out what a volume's filesystem cannot hold (owners, times, hard links ...), by trying it.

Some filesystems refuse (EPERM, ENOTSUP); others accept a change and do nothing: NFS with squashed root,
FAT, many of FUSE. So each capability is tried on a file and read back. warning_text says what a lack means.
"""

from __future__ import annotations

import os
import secrets
import stat
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail.source.stream import SourceStream
from cellblock.jail.tree.unsupported import Loss

CONSEQUENCES = {
    "owners": "every file is the mount's own user's: no user has files of their own, and sshd, sudo and "
    "munge refuse to start",
    "modes": "setuid programs (su, sudo, passwd) do not work, and private keys are readable by others",
    "times": "verify and upgrade see every file as changed, and make rebuilds what is up to date",
    "file capabilities": "programs that have them instead of setuid (ping, newuidmap) fail for users",
    "ACLs": "access that is given to single users and groups is lost",
    "extended attributes": "what programs note on files (user.*) is lost",
    "device nodes": "device nodes of the image are not there; /dev of a job is a mount of its own",
    "fifos": "named pipes of the image are not there",
    "symbolic links": "a Linux system does not run without them (/bin, /lib, every shared library)",
    "hard links": "each name of a file becomes a copy, which takes its space again",
}
"""By the names of `unsupported.LOSSES`."""

_CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
_ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHi", *one) for one in ((1, 6, -1), (2, 4, 1234), (4, 4, -1), (16, 4, -1), (32, 0, -1))
)
_TIME_NS = 1_600_000_000_123_456_789


@dataclass(frozen=True)
class FilesystemCapabilities:
    """The kinds of `unsupported.LOSSES` that a filesystem lacks, and the seconds that a call takes."""

    lacks: tuple[str, ...]
    latency_s: float


def probe(folder: Path) -> FilesystemCapabilities:
    """Try everything in a new folder below `folder`, which is removed again. Raises OSError."""
    # Pods have the same PID: shards must not meet, nor one that goes on with what a killed one left.
    place = folder / f"probe-{secrets.token_hex(8)}"
    place.mkdir(mode=0o700)
    try:
        started = time.perf_counter()
        tries = _tries(place)
        lacks = tuple(name for name, works in tries.items() if not _works(works))
        # A dozen of files, about five calls each that a server has to answer.
        latency = (time.perf_counter() - started) / 60
    finally:
        for path in place.iterdir():
            path.unlink()
        place.rmdir()
    return FilesystemCapabilities(lacks, latency)


def _works(attempt: Callable[[], bool]) -> bool:
    try:
        return attempt()
    except OSError:
        return False


def _tries(place: Path) -> dict[str, Callable[[], bool]]:
    def new(name: str) -> Path:
        path = place / name
        path.touch(mode=0o600)
        return path

    def owners() -> bool:
        path = new("owners")
        os.chown(path, 1234, 4321)
        return (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)

    def modes() -> bool:
        path = new("modes")
        found = []
        for mode in (0o6755, 0o400):
            path.chmod(mode)
            found.append(stat.S_IMODE(path.stat().st_mode) == mode)
        return all(found)

    def times() -> bool:
        path = new("times")
        os.utime(path, ns=(_TIME_NS, _TIME_NS))
        return path.stat().st_mtime_ns == _TIME_NS

    def attribute(key: str, value: bytes) -> Callable[[], bool]:
        def attempt() -> bool:
            path = new(key)
            os.setxattr(path, key, value)
            return os.getxattr(path, key) == value

        return attempt

    def device() -> bool:
        path = place / "device"
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        return path.stat().st_rdev == os.makedev(1, 3)

    def fifo() -> bool:
        os.mkfifo(place / "fifo")
        return stat.S_ISFIFO((place / "fifo").lstat().st_mode)

    def symlink() -> bool:
        (place / "symlink").symlink_to("a target")
        return str((place / "symlink").readlink()) == "a target"

    def hardlink() -> bool:
        path = new("hardlink")
        (place / "hardlink2").hardlink_to(path)
        return (place / "hardlink2").stat().st_ino == path.stat().st_ino

    return {
        "owners": owners,
        "modes": modes,
        "times": times,
        "file capabilities": attribute("security.capability", _CAPABILITY),
        "ACLs": attribute("system.posix_acl_access", _ACL),
        "extended attributes": attribute("user.cellblock", b"two\0lines\n"),
        "device nodes": device,
        "fifos": fifo,
        "symbolic links": symlink,
        "hard links": hardlink,
    }


def warning_text(volume: Path, loss: Loss) -> str:
    """Describe a loss and its consequence in one sentence."""
    return (
        f"{volume} could not hold the {loss.what} of {loss.count} files, for example {loss.example}: "
        f"{CONSEQUENCES[loss.what]}"
    )


def check_space(volume: Path, stream: SourceStream, shards: int) -> None:
    """Refuse before writing what cannot fit, in bytes and in files, as far as the source says."""
    status = os.statvfs(volume)
    available = status.f_bfree * status.f_frsize  # root may use the reserve too
    needs, files = stream.needs // shards, stream.files // shards
    if status.f_blocks and needs > available:  # 0: it does not count them
        raise CellblockError(
            f"{volume} has {available / 1e6:.1f} MB free, and the jail needs at least {needs / 1e6:.1f} MB; "
            "nothing was written",
            hint="free some space or use a larger volume",
        )
    if status.f_files and files > status.f_ffree:
        raise CellblockError(
            f"{volume} has room for {status.f_ffree} more files, and the jail has {files}; "
            "nothing was written",
            hint="make the volume's filesystem with more inodes",
        )
