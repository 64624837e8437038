# SPDX-License-Identifier: Apache-2.0
"""Changes plugstack.conf of the shared cluster while a block of a test runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.integration.local_cluster import LocalCluster, Unclear


@contextmanager
def changed_plugstack(cluster: LocalCluster, change: Callable[[str], str]) -> Iterator[None]:
    """Workers have `change` of the file, until the end; other tests go on with the one before."""
    path = cluster.root.parent.parent / "config" / "slurm" / "plugstack.conf"
    before = path.read_text()
    after = change(before)
    assert after != before
    path.write_text(after)
    try:
        _distribute(cluster, after)
    except Unclear:
        path.write_text(before)  # the workers have it still, or take it when the cluster is mended
        raise
    try:
        yield
    finally:
        path.write_text(before)
        _distribute(cluster, before)


def _distribute(cluster: LocalCluster, text: str) -> None:
    """Have the workers fetch it."""
    cluster.reconfigure()
    compare = ("cmp", "-s", "-", "/var/spool/slurmd/conf-cache/plugstack.conf")

    def has_it(worker: str) -> bool:
        return cluster.on(worker, *compare, stdin=text).status == 0

    for worker in ("worker-1", "worker-2"):
        cluster.wait_until(f"{worker} has it", lambda worker=worker: has_it(worker))  # type: ignore[misc]
    cluster.wait_until("jobs run", lambda: cluster.on("login", "srun", "-D/", "-N2", "true").status == 0)
