# SPDX-License-Identifier: Apache-2.0
"""Makes tokens by which users call a cluster's REST API (docs/rest.md), for `build.py token`.

Root runs `scontrol token` in slurmctld's container. Only the containers of slurmctld and slurmdbd have the
key that signs tokens, and it is never on a command line.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass

import docker

from cellblock.cluster.definition.amounts import seconds
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine import containers
from cellblock.cluster.engine.api import connect
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events

# A token cannot be taken back alone: a new key refuses all. What runs for longer asks for one again.
_LONGEST = "7d"
# As jail-accounts takes them (spank_jail/node/account_fields.c).
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*\$?")
# Ids of system users, as in deploy/slurm/job_submit.lua.
_FIRST_USER, _RESERVED = 1000, range(60001, 65536)
# Who is root to Slurm: a token of theirs is good for every user whom a request names besides.
_OPERATORS = ("root", "slurm")


@dataclass(frozen=True)
class Token:
    """A token of `user`, good until `expires`, seconds since the epoch, at each of `urls`."""

    user: str
    token: str
    lifetime_s: int
    expires: int
    urls: tuple[str, ...]


def make_token(name: str, user: str, lifetime: str, events: Events) -> Token:
    """Have slurmctld of cluster `name` make a token of `user` for `lifetime`, as in 1h.

    Raises UsageError for a user or a lifetime that cannot be, CellblockError when there is no such cluster,
    or no REST API in it.
    """
    lifetime_s = _lifetime_s(lifetime)
    known = _with_rest(name)
    if not _USER.fullmatch(user):
        raise UsageError(f"'{user}' is no name of a user", hint="name a user of the jail, as in `token ada`")
    with connect(known.engine) as client:
        _check_user(client, name, user, events)
        asked = ["scontrol", "token", f"username={user}", f"lifespan={lifetime_s}"]
        printed = containers.execute(client, name, "controller", asked)
    found = re.search(r"^SLURM_JWT=(\S+)$", printed, re.MULTILINE)
    claims = _claims(found[1]) if found else {}
    if not found or claims.get("sun") != user or not isinstance(claims.get("exp"), int):
        raise CellblockError(
            f"cluster {name}: slurmctld made no token of {user}, but said: {printed.strip()[-500:]}",
            hint=f"`build.py status{name_option(name)}` shows what runs",
        )
    return Token(user, found[1], lifetime_s, int(str(claims["exp"])), known.rest_urls)


def _with_rest(name: str) -> state.ClusterState:
    known = state.require(name)
    if not known.rest_ports:
        raise CellblockError(
            f"cluster {name} has no REST API, and so no key of tokens",
            hint="write `rest: {}` in its cluster file (`build.py render cluster` prints one to begin with); "
            f"then `build.py up --cluster FILE{name_option(name)}`",
        )
    return known


def _lifetime_s(lifetime: str) -> int:
    try:
        asked = seconds(lifetime)
    except ValueError as error:
        raise UsageError(f"--lifetime {lifetime}: {error}", hint="use --lifetime 1h") from error
    if asked > seconds(_LONGEST):
        raise UsageError(
            f"--lifetime {lifetime}: a token is good for {_LONGEST} at most",
            hint="ask for another before it ends: only a new key refuses one that leaked, and it refuses all",
        )
    return asked


def _check_user(client: docker.DockerClient, name: str, user: str, events: Events) -> None:
    """Refuse who is not there and system users; say what a token of root is."""
    unknown = UsageError(
        f"slurmctld of cluster {name} knows no user {user}",
        hint=f"`build.py shell --admin{name_option(name)} getent passwd` shows whom it knows; `useradd` in "
        "the jail makes one",
    )
    try:
        line = containers.execute(client, name, "controller", ["getent", "passwd", user])
    except CellblockError as error:
        if "ended with status 2" in error.message:
            raise unknown from error
        raise
    fields = line.strip().split(":")
    # getent takes a number for a uid.
    if len(fields) != 7 or fields[0] != user:
        raise unknown
    uid = int(fields[2])
    if user in _OPERATORS:
        events.warning(
            f"a token of {user} is root to Slurm: whoever has it administers the cluster, and runs jobs as "
            "anyone"
        )
    elif uid < _FIRST_USER or uid in _RESERVED:
        raise UsageError(
            f"user {user} has uid {uid}, a system user's, and those get no token",
            hint="name a user of the jail; an operator's token is root's",
        )


def _claims(token: str) -> dict[str, object]:
    """What a token says (RFC 7519); nothing when it is none. The signature is slurmctld's to check."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}
