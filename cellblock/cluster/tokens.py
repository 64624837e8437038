# SPDX-License-Identifier: Apache-2.0
"""Tokens of a cluster's REST API, and the key that they are signed with (docs/rest.md).

slurmctld makes the tokens, at the word of root on its node: the key is in the containers of slurmctld and
slurmdbd alone, and never in a command.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from dataclasses import dataclass

import docker
from docker.errors import DockerException

from cellblock.cluster.configuration import secrets
from cellblock.cluster.definition.amounts import seconds
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine import running
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
# Seconds for a daemon to start anew; one or two are usual.
_RESTART_S = 75.0
_POLL_S = 0.2
_LISTENS = {"accounting": ["bash", "-c", ": < /dev/tcp/127.0.0.1/6819"], "controller": ["scontrol", "ping"]}


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
        printed = running.execute(client, name, "controller", asked)
    found = re.search(r"^SLURM_JWT=(\S+)$", printed, re.MULTILINE)
    claims = _claims(found[1]) if found else {}
    if not found or claims.get("sun") != user or not isinstance(claims.get("exp"), int):
        raise CellblockError(
            f"cluster {name}: slurmctld made no token of {user}, but said: {printed.strip()[-500:]}",
            hint=f"`build.py status{name_option(name)}` shows what runs",
        )
    return Token(user, found[1], lifetime_s, int(str(claims["exp"])), known.rest_urls)


def rotate_key(name: str, events: Events) -> None:
    """Give cluster `name` a new key of tokens: all that were made before are refused when this returns.

    slurmdbd and slurmctld start anew; jobs go on. Raises CellblockError when they do not; run it again then.
    """
    with state.locked(name):
        known = _with_rest(name)
        hosts = [host for host in ("accounting", "controller") if host in known.containers]
        secrets.make_jwt_key(state.folder(name) / "secrets")
        with connect(known.engine) as client:
            for host in hosts:
                with events.step("cluster", f"start {host} anew"):
                    _restart(client, name, host)


def _with_rest(name: str) -> state.ClusterState:
    known = state.require(name)
    if not known.rest_ports:
        raise CellblockError(
            f"cluster {name} has no REST API, and so no key of tokens",
            hint="write `rest: {}` in its cluster file; then "
            f"`build.py up --cluster FILE{name_option(name)}`",
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
        line = running.execute(client, name, "controller", ["getent", "passwd", user])
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


def _restart(client: docker.DockerClient, name: str, host: str) -> None:
    try:
        running.restart(client, name, host)
    except DockerException as error:
        raise _not_anew(name, host, str(error)) from error
    deadline = time.monotonic() + _RESTART_S
    while not running.succeeds(client, name, host, _LISTENS[host]):
        if time.monotonic() >= deadline:
            raise _not_anew(name, host, f"it does not answer after {_RESTART_S:.0f} s")
        time.sleep(_POLL_S)


def _not_anew(name: str, host: str, why: str) -> CellblockError:
    return CellblockError(
        f"cluster {name}: the key of tokens is new, but {host} did not start anew with it: {why}",
        hint=f"`build.py token --rotate{name_option(name)}` again, or "
        f"`build.py up --cluster FILE{name_option(name)}`",
    )
