# SPDX-License-Identifier: Apache-2.0
"""The keys of `build.py bench pyxis --json`, which others read."""

from cellblock.bench.peers.pyxis_peers import peer_keys
from cellblock.bench.pyxis import ContainerCost


def test_keys() -> None:
    steps = {
        "bare": [1.0, 2, 9],
        "existing": [10.0, 20, 30],
        "sqsh": [30.0, 40, 50],
        "bare16": [5.0],
        "tasks16": [25.0],
    }
    keys = ContainerCost(rounds=3, steps=steps, seconds=1).keys()
    assert (keys["bare_ms"], keys["existing_over_bare_ms"], keys["sqsh_over_bare_ms"]) == (2, 18, 38)
    assert (keys["tasks16_over_bare_ms"], keys["registry_cached_over_bare_ms"]) == (20, None)


def test_keys_of_peers() -> None:
    names = ("pyxis", "podman", "charliecloud", "apptainer")
    times = {"bare": [1.0, 2, 9], "bare16": [10.0]}
    times |= {name: [12.0, 22, 29] for name in names} | {f"{name}16": [110.0] for name in names}
    keys = peer_keys(times)
    assert keys["peers_bare_ms"] == 2
    assert {keys[f"{name}_over_bare_ms"] for name in names} == {20}
    assert {keys[f"{name}_tasks16_over_bare_ms"] for name in names} == {100}
