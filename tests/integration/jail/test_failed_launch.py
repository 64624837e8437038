# SPDX-License-Identifier: Apache-2.0
"""slurmd ends slurmstepds that stay after their launch failed: those of Slurm 26.05 do now and then."""

from __future__ import annotations

import time

import pytest

from tests.integration.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

_WORKER = "worker-1"
# Twice of what slurmd gives them (spank_jail/guards/node/stuck_children.c).
_ENDS_S = 40
# Their parent reaps orphans above slurmd, as a slurmstepd's does. "failed" still has the pipes of its launch.
_START = r"""
use POSIX qw(setsid);
for my $name ("failed", "running") {
    pipe(my $input, my $to) && pipe(my $from, my $output) or die "pipe: $!";
    fork and next;
    setsid();
    fork and exit;
    my $failed = $name eq "failed";
    open(STDIN, $failed ? "<&" : "<", $failed ? $input : "/dev/null") or die "input: $!";
    open(STDOUT, $failed ? ">&" : ">", $failed ? $output : "/dev/null") or die "output: $!";
    close($_) for $input, $to, $from, $output;
    $0 = "slurmstepd $name";
    sleep 300;
    exit;
}
"""


def _runs(cluster: LocalCluster, name: str) -> bool:
    return cluster.on(_WORKER, "pgrep", "-f", f"^slurmstepd {name}$").status == 0


def test_a_slurmstepd_whose_launch_failed_is_ended(cluster: LocalCluster) -> None:
    cluster.on(_WORKER, "perl", "-e", _START).ok()
    try:
        cluster.wait_until("both run", lambda: _runs(cluster, "failed") and _runs(cluster, "running"))
        started = time.monotonic()
        while _runs(cluster, "failed") and time.monotonic() - started < _ENDS_S:
            time.sleep(0.5)
        assert not _runs(cluster, "failed")
        assert time.monotonic() - started > 5, "one that is about to end is given no time"
        assert _runs(cluster, "running")
    finally:
        cluster.on(_WORKER, "pkill", "-f", "^slurmstepd (failed|running)$")
