# SPDX-License-Identifier: Apache-2.0
"""Changes Slurm's configuration on the cluster that the escape tests attack."""

from __future__ import annotations

from pathlib import Path

from tests.integration.escape.arena import WORKER, Arena


def publish(arena: Arena, file: Path, text: str) -> None:
    """Write a file of Slurm's configuration, and wait until the worker has it."""
    file.write_text(text)
    arena.cluster.reconfigure()
    look = ("cmp", "-s", "-", f"/var/spool/slurmd/conf-cache/{file.name}")
    arena.cluster.wait_until(
        f"{WORKER} has the new {file.name}", lambda: arena.cluster.on(WORKER, *look, stdin=text).status == 0
    )
