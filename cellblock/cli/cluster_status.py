# SPDX-License-Identifier: Apache-2.0
"""`build.py status`: prints the state of a cluster's containers and nodes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from cellblock.cli.cluster import NameOption
from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption
from cellblock.cli.rows import Whole, print_rows
from cellblock.cli.waiting import told_when_slow
from cellblock.launcher.failure import typeable

if TYPE_CHECKING:
    from cellblock.cluster import ClusterStatus


def status(name: NameOption = "cellblock", as_json: JsonOption = False) -> None:
    """Show the cluster's containers and Slurm's nodes."""
    from cellblock import cluster
    from cellblock.cluster.facts import rotation_record, state, upgrade_record

    with told_when_slow() as waits_for:
        found = cluster.status(name, waits_for)
        waits_for("a look at the jail and who has it")
        jail = "" if as_json else _jail_line(found)
    if as_json:
        print_json({**asdict(found), "ready": found.ready})
        return
    print(f"cluster {found.name}: {found.variant}, Slurm {found.release}, {found.engine}")
    print_rows(_rows(found, jail))
    record = upgrade_record.read(name)
    if record and record.phase != "done":
        print(f"an upgrade is not over: `python3 {record.command}` goes on")
        raise typer.Exit(1)
    rotation = rotation_record.read(name)
    if rotation:
        print(f"a rotation of secrets is not over: `python3 {rotation.command}` goes on")
        raise typer.Exit(1)
    if not found.ready:
        print(f"not ready: {_what_is_missing(found)}")
        print(typeable(f"  next: {state.same_up(name)} starts it"))
        raise typer.Exit(1)


def _rows(found: ClusterStatus, jail: str) -> list[tuple[str, str]]:
    """A word and what it is about."""
    names = [*(one.name for one in found.containers), *(one.name for one in found.nodes)]
    width = max(map(len, names), default=0)
    rows = [("volume", Whole(found.volume)), *([("jail", jail)] if jail else [])]
    rows += [("container", f"{one.name:{width}}  {one.state}") for one in found.containers]
    rows += [("node", f"{one.name:{width}}  {one.state}") for one in found.nodes]
    rows += [("rest", url) for url in found.rest_urls]
    rows.append(("ssh", Whole(found.ssh_command)))
    if found.host_key:
        rows.append(("host key", Whole(f"{found.host_key} (ED25519)")))
    return rows


def _what_is_missing(found: ClusterStatus) -> str:
    """Why the cluster is not ready, in one line."""
    from cellblock.cluster.definition.model import SERVING

    ended = [one.name for one in found.containers if one.state != "running"]
    if all(one.state == "gone" for one in found.containers):
        return "its containers are gone; its jail is kept"
    if len(ended) == len(found.containers):
        return "none of its containers runs"
    if ended:
        return f"{len(ended)} of {len(found.containers)} containers do not run: {', '.join(ended)}"
    idle = [f"{one.name} {one.state}" for one in found.nodes if one.state not in SERVING]
    return f"nodes that take no jobs: {', '.join(idle)}" if idle else "slurmctld does not answer yet"


def _jail_line(found: ClusterStatus) -> str:
    """The jail in one line; none where it cannot be looked at, which `jail status` explains."""
    from cellblock.cli.jail.status import line_of
    from cellblock.errors import CellblockError
    from cellblock.jail.status import status as jail_status

    try:
        return line_of(jail_status(found.volume))
    except (CellblockError, OSError):
        return ""
