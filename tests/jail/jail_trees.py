# SPDX-License-Identifier: Apache-2.0
"""Makes trees with everything that a filesystem can hold, and compares trees without Cellblock's own code."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from pathlib import Path

CAP_NET_RAW = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
"""security.capability, version 2: cap_net_raw=ep, as ping has it."""


def acl(uid: int) -> bytes:
    """system.posix_acl_*: u::rw-, u:UID:r--, g::r--, m::r--, o::---."""
    entries = [(1, 6, -1), (2, 4, uid), (4, 4, -1), (16, 4, -1), (32, 0, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


def make_everything(root: Path) -> None:
    """A tree of one of each; whole nanoseconds in the times, so that a tar can hold them too."""
    root.mkdir()
    for folder, mode in (
        ("tmp", 0o1777),
        ("usr", 0o755),
        ("usr/bin", 0o755),
        ("private", 0o700),
        ("shut", 0o111),
    ):
        (root / folder).mkdir()
        (root / folder).chmod(mode)
    (root / "setgid").mkdir()
    os.chown(root / "setgid", 100_000, 42)
    (root / "setgid").chmod(0o2775)
    os.setxattr(root / "setgid", "system.posix_acl_default", acl(1234))

    big = root / "usr/bin/big"
    big.write_bytes(bytes(range(256)) * 9000)  # several chunks of the writer
    for name in ("hard-link", "z-hard-link"):
        os.link(big, root / name)
    (root / "usr/bin/passwd").write_bytes(b"setuid")
    os.chown(root / "usr/bin/passwd", 0, 42)
    (root / "usr/bin/passwd").chmod(0o6755)
    (root / "usr/bin/ping").write_bytes(b"capable")
    os.chown(root / "usr/bin/ping", 1000, 1000)
    os.setxattr(root / "usr/bin/ping", "security.capability", CAP_NET_RAW)
    (root / "shared").write_bytes(b"acl")
    (root / "shared").chmod(0o640)
    os.setxattr(root / "shared", "system.posix_acl_access", acl(1234))
    os.setxattr(root / "shared", "user.comment", b"two\nlines \xff\x00")
    (root / "empty").touch()
    (root / "secret").write_bytes(b"nobody may read this")
    (root / "secret").chmod(0)
    with (root / "sparse").open("wb") as sparse:
        sparse.seek(1 << 20)
        sparse.write(b"island")
        sparse.truncate(8 << 20)
    with (root / "hole").open("wb") as hole:
        hole.truncate(4 << 20)

    (root / "bin").symlink_to("usr/bin")
    (root / "dangling").symlink_to("/nowhere at all")
    os.lchown(root / "dangling", 7, 8)
    os.mkfifo(root / "fifo", 0o620)
    os.mknod(root / "null", 0o020666, os.makedev(1, 3))
    os.mknod(root / "disk", 0o060660, os.makedev(8, 17))
    for name in (
        b"not utf-8 \xff\xfe",
        b"new\nline",
        b"100%=,",
        "gr\u00fc\u00df".encode(),
        b"-rf",
        b"x" * 255,
    ):
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_bytes(name)
    (root / "/".join(["deep"] * 60)).mkdir(parents=True)

    for number, path in enumerate(sorted(root.rglob("*"))):
        time = 1_600_000_000_123_456_789 + number * 1_000_000_007
        os.utime(path, ns=(time, time), follow_symlinks=False)
    os.utime(root, ns=(0, 1_500_000_000_000_000_001))


def snapshot(root: Path) -> dict[bytes, tuple[object, ...]]:
    """All that can be seen of a tree, by path; written without the code that it tests."""
    inodes: dict[tuple[int, int], list[bytes]] = {}
    seen: dict[bytes, tuple[object, ...]] = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        relative = b"" if path == root else os.fsencode(path.relative_to(root))
        content: object = None
        if stat.S_ISLNK(status.st_mode):
            content = path.readlink()
        elif stat.S_ISREG(status.st_mode):
            data = path.read_bytes()
            content = (len(data), hashlib.sha256(data).hexdigest())
        if not stat.S_ISDIR(status.st_mode):
            inodes.setdefault((status.st_dev, status.st_ino), []).append(relative)
        names = sorted(os.listxattr(path, follow_symlinks=False))
        seen[relative] = (
            oct(status.st_mode),
            status.st_uid,
            status.st_gid,
            status.st_mtime_ns,
            status.st_rdev,
            content,
            tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in names),
        )
    for together in inodes.values():
        for name in together:
            seen[name] += (tuple(sorted(together)),)
    return seen
