# SPDX-License-Identifier: Apache-2.0
"""`build.py status`: what runs of a cluster."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from cellblock.cli.cluster import NameOption
from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption

if TYPE_CHECKING:
    from cellblock.cluster import ClusterStatus


def status(name: NameOption = "cellblock", as_json: JsonOption = False) -> None:
    """Show the cluster's containers and Slurm's nodes."""
    from cellblock import cluster
    from cellblock.cluster.facts import rotation_record, upgrade_record

    found = cluster.status(name)
    if as_json:
        print_json({**asdict(found), "ready": found.ready})
        return
    print(
        f"cluster {found.name}: {found.variant}, Slurm {found.release}, {found.engine}, jail {found.volume}"
    )
    if line := _jail_line(found):
        print(f"  jail      {line}")
    for container in found.containers:
        print(f"  container {container.name:30} {container.state}")
    for node in found.nodes:
        print(f"  node      {node.name:30} {node.state}")
    for url in found.rest_urls:
        print(f"  rest      {url}")
    record = upgrade_record.read(name)
    if record and record.phase != "done":
        print(f"an upgrade is not over: `python3 {record.command}` goes on")
        raise typer.Exit(1)
    rotation = rotation_record.read(name)
    if rotation:
        print(f"a rotation of secrets is not over: `python3 {rotation.command}` goes on")
        raise typer.Exit(1)
    if not found.ready:
        print(
            f"not ready: `python3 build.py up{cluster.name_option(name)}`, with its other options, starts "
            "what is missing"
        )
        raise typer.Exit(1)


def _jail_line(found: ClusterStatus) -> str:
    """The jail in one line; none where it cannot be looked at, which `jail status` explains."""
    from cellblock.cli.jail.status import line_of
    from cellblock.errors import CellblockError
    from cellblock.jail.status import status as jail_status

    try:
        return line_of(jail_status(found.volume))
    except (CellblockError, OSError):
        return ""
