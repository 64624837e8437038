# SPDX-License-Identifier: Apache-2.0
"""`build.py health`: prints what the health checks of a cluster's nodes found last."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cellblock.cli.cluster import NameOption
from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption

if TYPE_CHECKING:
    from cellblock.cluster.health import NodeHealth


def health(
    node: Annotated[str | None, typer.Argument(help="A node; all of its checks are shown.")] = None,
    name: NameOption = "cellblock",
    active: Annotated[
        bool,
        typer.Option("--active", help="First have a job measure idle nodes, or NODE and a few others."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what the health checks of the nodes found last; status 1 when one has failed."""
    from cellblock.cluster.health import health as look
    from cellblock.cluster.health import measure

    if active:
        said, fit = measure(name, node)
        if not as_json:
            print(said)
            if not fit:
                raise typer.Exit(1)
            return
    found = look(name, node)
    if as_json:
        print_json({"cluster": name, "nodes": [{**asdict(one), "fit": one.fit} for one in found]})
    else:
        for one in found:
            _print(one, everything=node is not None)
    if not all(one.fit for one in found):
        raise typer.Exit(1)


def _print(one: NodeHealth, *, everything: bool) -> None:
    """A line for the node, and one for each check that has something to say."""
    verdicts = [check.verdict for check in one.checks]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
    print(f"{one.node}  {one.state or 'unknown to slurmctld'}  {one.error or counts}")
    if one.reason:
        print(f"  {one.reason}")
    for check in one.checks:
        if everything or check.verdict != "passed":
            sick = "(sick) " if check.sick else ""
            print(f"  {check.check:17} {check.verdict:15} {sick}{check.text}".rstrip())
