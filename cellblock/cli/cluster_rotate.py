# SPDX-License-Identifier: Apache-2.0
"""`build.py cluster rotate`: replaces secrets of a running cluster."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cellblock.cli.confirm import ask
from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption, cluster_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.cluster.facts.rotation_record import Secret
    from cellblock.cluster.rotating.rotation import RotationDone, RotationPlan

_SECRETS = ("tokens", "database", "logins", "hosts", "munge", "slurm", "all")


def cluster_rotate(
    secret: Annotated[
        list[str],
        typer.Argument(
            help=f"Secrets to rotate: {', '.join(_SECRETS)}.", autocompletion=lambda: list(_SECRETS)
        ),
    ],
    name: Annotated[
        str, typer.Option("--name", help="Name of the cluster.", autocompletion=cluster_names)
    ] = "cellblock",
    wait: Annotated[
        str | None,
        typer.Option(
            help="How long nodes wait for their jobs before munge's key changes (default: 10m); 0 ends them."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Give a cluster that runs new secrets; what the old ones opened is closed then.

    tokens: the key of the REST API's tokens. database: slurmdbd's password. logins: the key that opens a
    session on the login node. hosts: the login node's host keys. munge: the key of Slurm's daemons.
    slurm: the same with auth/slurm.
    Interrupted, the same command goes on.
    """
    from cellblock.cli.views import make_view
    from cellblock.cluster.rotating import rotation
    from cellblock.cluster.up_request import UpRequest, patience_s
    from cellblock.events import Events

    patience = patience_s(UpRequest(wait=wait))
    planned = rotation.plan(name, secret)
    if not yes:
        _print_plan(planned, rotation.EFFECTS)
        ask(f"Rotate them in cluster {name}?", hint="say --yes")
    events = Events()
    with make_view(log, events):
        for reason in planned.passed_over.values():
            events.info(f"cluster: {reason}")
        done = rotation.rotate(name, secret, events, patience_s=patience)
    if as_json:
        print_json({**asdict(done), "seconds": round(done.seconds, 3)})
        return
    _print_done(done)


def _print_plan(planned: RotationPlan, effects: Mapping[Secret, str]) -> None:
    goes_on = ", whose rotation was interrupted and goes on" if planned.goes_on else ""
    print(f"cluster {planned.name}{goes_on}:")
    for one in planned.secrets:
        print(f"  {one:9} {effects[one]}")
    for one, reason in planned.passed_over.items():
        print(f"  {one:9} not rotated: {reason}")


def _print_done(done: RotationDone) -> None:
    print(f"cluster {done.name} has new secrets after {done.seconds:.0f} s: {', '.join(done.secrets)}")
    if "logins" in done.secrets:
        print(f"  the key that opens a session: {done.ssh_key}")
    if "hosts" in done.secrets:
        print(
            "  clients that know the login node's old host keys refuse it; each forgets them by\n"
            f"  ssh-keygen -R '[127.0.0.1]:{done.ssh_port}'"
        )
