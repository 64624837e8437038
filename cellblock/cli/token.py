# SPDX-License-Identifier: Apache-2.0
"""`build.py token`: makes a token with which a user calls a cluster's REST API."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import JsonOption, LogOption, cluster_names


def token(
    user: Annotated[str | None, typer.Argument(help="User of the jail.")] = None,
    lifetime: Annotated[
        str, typer.Option(help="How long it is good, as in 30m, 1h or 2d; 7d at most.")
    ] = "1h",
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new key instead: all tokens of before are refused.")
    ] = False,
    name: Annotated[
        str, typer.Option("--name", help="Name of the cluster.", autocompletion=cluster_names)
    ] = "cellblock",
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Make a token with which a user asks the REST API, and print it as SLURM_JWT=TOKEN.

    The token of root is root to Slurm. Jobs go on while the key changes.
    """
    from cellblock.cli.views import make_view
    from cellblock.cluster import name_option, tokens
    from cellblock.cluster.rotating.rotation import rotate as rotate_secrets
    from cellblock.errors import UsageError
    from cellblock.events import Events

    if rotate == (user is not None):
        raise UsageError(
            "a token is made for one user, and --rotate is for all: name one of the two",
            hint=f"`build.py token USER{name_option(name)}`, or `build.py token --rotate{name_option(name)}`",
        )
    events = Events()
    with make_view(log, events):
        if user is None:
            rotate_secrets(name, ("tokens",), events)
        else:
            made = tokens.make_token(name, user, lifetime, events)
    if user is None:
        if as_json:
            print_json({"cluster": name, "rotated": True})
        else:
            print(f"cluster {name} has a new key: tokens of before are refused")
    else:
        print_json(asdict(made)) if as_json else print(f"SLURM_JWT={made.token}")
