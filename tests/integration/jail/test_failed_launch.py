# SPDX-License-Identifier: Apache-2.0
"""slurmd ends slurmstepds that stay after their launch failed: those of Slurm 26.05 do now and then."""

from __future__ import annotations

import time

import pytest

from tests.integration.conftest import LocalCluster

pytestmark = pytest.mark.integration

_WORKER = "worker-1"
# Twice of what slurmd gives them (spank_jail/guards/errands.c).
_ENDS_S = 40
# A slurmstepd with slurmd's pipes as its input and output; and one whose launch went well, which has none.
_START = """cp /usr/bin/sleep /run/slurmstepd
(/usr/bin/sleep 300 | setsid /run/slurmstepd 301 | /usr/bin/sleep 300) >/dev/null 2>&1 &
(setsid /run/slurmstepd 302 </dev/null >/dev/null 2>&1 &) &"""


def _runs(cluster: LocalCluster, word: str) -> bool:
    return cluster.on(_WORKER, "pgrep", "-f", f"^/run/slurmstepd {word}$").status == 0


def test_a_slurmstepd_whose_launch_failed_is_ended(cluster: LocalCluster) -> None:
    cluster.on(_WORKER, "sh", "-c", _START).ok()
    try:
        cluster.wait_until("both run", lambda: _runs(cluster, "301") and _runs(cluster, "302"))
        started = time.monotonic()
        while _runs(cluster, "301") and time.monotonic() - started < _ENDS_S:
            time.sleep(0.5)
        assert not _runs(cluster, "301")
        assert time.monotonic() - started > 5, "one that is about to end is given no time"
        assert _runs(cluster, "302")
    finally:
        cluster.on(_WORKER, "sh", "-c", "pkill -f '^/run/slurmstepd '; pkill -f '^/usr/bin/sleep 300$'")
