# SPDX-License-Identifier: Apache-2.0
"""Meets other tasks as torch.distributed does with env://: rank 0 listens at MASTER_ADDR, others connect.

Each task then prints its RANK of WORLD_SIZE, its LOCAL_RANK, and the sum of all ranks, which only rank 0
knows.
"""

from __future__ import annotations

import os
import socket
import sys
import time

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def collect() -> int:
    """Rank 0: hears all others, then answers them."""
    with socket.create_server(("", ADDRESS[1])) as server:
        server.settimeout(20)
        others = [server.accept()[0] for _ in range(SIZE - 1)]
        total = sum(int(other.recv(16)) for other in others)
        for other in others:
            other.sendall(str(total).encode())
    return total


def tell() -> int:
    for _ in range(200):
        try:
            with socket.create_connection(ADDRESS, timeout=20) as store:
                store.sendall(str(RANK).encode())
                return int(store.recv(16))
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise TimeoutError(f"nobody listens at {ADDRESS}")


total = tell() if RANK else collect()
local = os.environ["LOCAL_RANK"]
sys.stdout.write(f"rank {RANK} of {SIZE} on {os.uname().nodename} sum {total} local {local}\n")
