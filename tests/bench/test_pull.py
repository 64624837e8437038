# SPDX-License-Identifier: Apache-2.0
"""The keys of `build.py bench pull --json` and of `bench enroot --peers`, which others read."""

from __future__ import annotations

import socket
import threading

from cellblock.bench.harness.counting_proxy import counting_proxy
from cellblock.bench.peers.container_peers import RuntimeCost
from cellblock.bench.pull import PullFigures, Way


def test_keys() -> None:
    ways = {
        name: Way(first_s=number, first_bytes=1000 * number, update_s=0.5, update_bytes=40)
        for number, name in enumerate(("spread", "built", "buildah"), 1)
    }
    keys = PullFigures(ways, as_built_ratio=0.9, ratios=(0.01, 0.03, 0.2), seconds=1).keys()
    assert (keys["first_job_s"], keys["first_job_bytes"], keys["update_bytes_ratio"]) == (1, 1000, 0.04)
    assert (keys["update_bytes_ratio_median"], keys["packages_within_5_percent"]) == (0.03, 0.667)
    assert keys["buildah_first_job_bytes"] == 3000


def test_keys_of_a_peer() -> None:
    cost = RuntimeCost({"base": 1.234, "big": 9}, folder_ms=2.34, file_ms=None, tasks_ms=50, task_kib=800)
    assert cost.keys("podman") == {
        "podman_import_file_base_s": 1.23,
        "podman_import_file_big_s": 9,
        "podman_start_folder_ms": 2.3,
        "podman_start_file_ms": None,
        "podman_tasks16_ms": 50,
        "podman_task_kib": 800,
    }


def test_a_proxy_counts_what_the_registry_answers() -> None:
    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            assert connection.recv(4) == b"ping"
            connection.sendall(b"x" * 100_000)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        with counting_proxy(f"127.0.0.1:{server.getsockname()[1]}") as proxy:
            host, _, port = proxy.address.partition(":")
            with socket.create_connection((host, int(port))) as client:
                client.sendall(b"ping")
                while client.recv(65536):
                    pass
            assert proxy.taken() == 100_000
            assert proxy.taken() == 0
