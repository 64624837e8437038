# SPDX-License-Identifier: Apache-2.0
"""Mounts something inside a container from outside, because its image has no mount(8).

usage: python3 node_mounts.py PID mount TARGET OPTIONS | remount TARGET OPTIONS | umount TARGET
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

CLONE_NEWNS = 0x20000
MS_RDONLY, MS_REMOUNT = 1, 32
MNT_DETACH = 2


def join(pid: int) -> ctypes.CDLL:
    """Enter the mount namespace of `pid`; returns the C library."""
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    must(libc.setns(namespace, CLONE_NEWNS), f"namespace of {pid}")
    return libc


def must(result: int, what: str) -> None:
    """End the program where a call failed."""
    if result:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


def on_node(pid: str, *words: str) -> None:
    """Run this file as a program: a process cannot come back from another namespace."""
    done = subprocess.run(
        [sys.executable, __file__, pid, *words], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def main(pid: str, command: str, target: str, options: str = "") -> None:
    """What the words of the command line say."""
    path = target.encode()
    libc = join(int(pid))
    if command == "umount":
        must(libc.umount2(path, MNT_DETACH), target)
        return
    words = [word for word in options.split(",") if word not in ("", "ro")]
    flags = (MS_RDONLY if "ro" in options.split(",") else 0) | (MS_REMOUNT if command == "remount" else 0)
    must(libc.mount(b"none", path, b"tmpfs", flags, ",".join(words).encode()), target)


if __name__ == "__main__":
    main(*sys.argv[1:])
