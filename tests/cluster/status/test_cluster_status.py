# SPDX-License-Identifier: Apache-2.0
"""What `status` says of a cluster that is not whole."""

from __future__ import annotations

from collections.abc import Callable

from cellblock.cluster import ClusterSpec, start, status
from cellblock.events import Events
from tests.cluster.fake_engine import FakeEngine


def test_a_cluster_without_one_of_its_containers_is_not_ready(
    spec: Callable[..., ClusterSpec], engine: FakeEngine, free_port: int
) -> None:
    start(spec(ssh_port=free_port), Events())
    asked: list[str] = []
    assert status("test", asked.append).ready
    assert asked[0] == "the Docker API of podman"
    engine.made.remove(engine.workers("cellblock-test")[0])
    found = status("test")
    assert {one.name: one.state for one in found.containers if one.state != "running"} == {
        "cellblock-test-worker-1": "gone"
    }
    assert not found.ready
