# SPDX-License-Identifier: Apache-2.0
"""Serves a FUSE file system whose file handles are all stale, like an NFS export that was made anew.

usage: python3 stale_volume.py PID PATH - mount it at PATH in the mount namespace of PID, and serve until
killed. Prints a line when it is mounted. linux/fuse.h has the protocol.
"""

from __future__ import annotations

import errno
import os
import struct
import sys

from node_mounts import join, must

IN_HEADER = struct.Struct("=IIQQIIIHH")  # len opcode unique nodeid uid gid pid total_extlen padding
OUT_HEADER = struct.Struct("=IiQ")  # len error unique
FORGET, INIT, BATCH_FORGET = 2, 26, 42
# major minor max_readahead flags, max_background congestion_threshold, max_write time_gran, the rest 0
INIT_OUT = struct.pack("=IIIIHHII", 7, 31, 0, 0, 1, 1, 4096, 1) + bytes(32)


def mount(pid: int, path: str) -> int:
    """Mount it in the namespace of `pid`; returns the connection to the kernel."""
    connection = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={connection},rootmode=40755,user_id=0,group_id=0"
    must(join(pid).mount(b"stale", path.encode(), b"fuse", 0, options.encode()), path)
    return connection


def serve(connection: int) -> None:
    """Answer the kernel: INIT well, all else with ESTALE."""
    while True:
        request = os.read(connection, 1 << 17)
        _, opcode, unique, *_ = IN_HEADER.unpack_from(request)
        if opcode in (FORGET, BATCH_FORGET):
            continue
        error, body = (0, INIT_OUT) if opcode == INIT else (-errno.ESTALE, b"")
        os.write(connection, OUT_HEADER.pack(OUT_HEADER.size + len(body), error, unique) + body)


if __name__ == "__main__":
    channel = mount(int(sys.argv[1]), sys.argv[2])
    print("mounted", flush=True)  # noqa: T201 - the test waits for it
    serve(channel)
