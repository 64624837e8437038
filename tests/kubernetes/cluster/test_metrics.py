# SPDX-License-Identifier: Apache-2.0
"""What pods of nodes count of their steps reaches the exporter, by the jail's volume."""

from __future__ import annotations

import re

import pytest

from tests.kubernetes.helpers.small_cluster import Site

pytestmark = pytest.mark.integration


def test_steps_of_pods_are_counted(small: Site) -> None:
    def steps() -> dict[str, int]:
        ask = ("get", "--raw", f"/api/v1/namespaces/{small.space}/services/metrics:9341/proxy/metrics")
        said = small.kubernetes.run(*ask).stdout
        found = re.findall(
            r'^cellblock_steps_entered_total\{[^}]*"(worker-\d)"[^}]*\} (\d+)', said, re.MULTILINE
        )
        return {node: int(count) for node, count in found}

    small.jail("srun", "--nodes=2", "--chdir=/", "true")
    small.until(
        "both nodes' steps", lambda: set(steps()) == {"worker-0", "worker-1"} and all(steps().values())
    )
