# SPDX-License-Identifier: Apache-2.0
"""Makes the ordinary user of the jail who submits the jobs of proof.py, when there is none yet."""

from __future__ import annotations

import time
from collections.abc import Callable

import docker

from cellblock.cluster.definition.names import name_option
from cellblock.cluster.engine.containers import execute, succeeds
from cellblock.cluster.local import in_jail
from cellblock.errors import CellblockError

PROOF_USER = "cellblock"
"""Named so that whoever finds it in the jail knows where it comes from."""

# FIRST_UID of adduser.conf(5): users below it are the system's, and submit no jobs
# (deploy/slurm/job_submit.lua).
_FIRST_USER = 1000

ENSURE_SCRIPT = """
    getent passwd "$0" && exit
    command -v useradd >/dev/null || { echo "the jail has no useradd (package passwd)"; exit 1; }
    useradd --create-home --shell /bin/bash --comment "runs the proof of build.py up" "$0" 2>&1 &&
        getent passwd "$0"
"""
"""Prints the line of passwd(5) of the user in $0, who is made when missing."""

# Seconds for that: a jail whose name service waits for something must not hold up `up` for ever.
_ENSURE_S = 60
_TRIES = 3

MAY_SUBMIT = """
    scontrol show config | grep -q '^AccountingStorageEnforce.*associations' || exit 0
    scontrol --oneliner show assoc_mgr users="$0" flags=assoc |
        grep -q "^ClusterName=.* UserName=$0($(id -u "$0")) "
"""
"""Ends with 0, on the controller, when slurmctld takes jobs of the user in $0, as far as associations go.

It hears of the user first, then of the association, and finds that by the uid, which it looks up once.
"""

# Seconds until slurmctld's node knows a new user of the jail; two are usual.
_KNOWN_S = 30.0
_POLL_S = 0.1


def ensure_proof_user(client: docker.DockerClient, cluster: str) -> None:
    """Make PROOF_USER in the jail of `cluster` unless there is such a user, who is not changed.

    Raises CellblockError when it cannot be made, is a system user, or the controller does not get to know it.
    """
    command = in_jail("sh", "-c", ENSURE_SCRIPT, PROOF_USER)
    shell = f"build.py shell{name_option(cluster)}"
    again = f"`build.py up{name_option(cluster)}` again"
    output = ""
    try:
        # podman's API has lost what a command printed, on a busy machine.
        for _ in range(_TRIES):
            output = output or execute(client, cluster, "login", ["timeout", str(_ENSURE_S), *command])
    except CellblockError as error:
        said = error.message.rpartition("ended with status ")[2]
        raise CellblockError(
            f"user {PROOF_USER}, who runs the proof's jobs, cannot be made in the jail: status {said}",
            hint=f"see why with `{shell}`, and make it: useradd --create-home {PROOF_USER}; then {again}",
        ) from error
    uid = _uid(output, shell)
    if uid < _FIRST_USER:
        raise CellblockError(
            f"user {PROOF_USER} of the jail has uid {uid}, a system user's, and those submit no jobs; "
            "`build.py up` runs its proof as this user",
            hint=f"rename that user (usermod --login NEW {PROOF_USER}, in `{shell}`); then {again}",
        )
    _wait_until_known(client, cluster)


def _uid(output: str, shell: str) -> int:
    """The uid in the last line of `output`, a line of passwd(5)."""
    lines = output.strip().splitlines()
    fields = lines[-1].split(":") if lines else []
    if len(fields) != 7 or fields[0] != PROOF_USER or not fields[2].isdecimal():
        raise CellblockError(
            f"`getent passwd {PROOF_USER}` in the jail printed no line of passwd(5): "
            f"{output.strip()[-200:]!r}",
            hint=f"look into the jail's /etc/nsswitch.conf and /etc/passwd with `{shell}`",
        )
    return int(fields[2])


def _wait_until_known(client: docker.DockerClient, cluster: str) -> None:
    """Wait until the controller resolves PROOF_USER, whom it takes from a copy, and takes jobs of theirs."""
    shell = f"`build.py shell --admin{name_option(cluster)}"
    _wait(
        lambda: succeeds(client, cluster, "controller", ["getent", "passwd", PROOF_USER]),
        f"the controller does not know user {PROOF_USER} of the jail",
        f"{shell} getent passwd` shows whom it knows; the jail's /etc/passwd must be a regular file that has "
        "this user",
    )
    _wait(
        lambda: succeeds(client, cluster, "controller", ["sh", "-c", MAY_SUBMIT, PROOF_USER]),
        f"user {PROOF_USER} of the jail has no association, and accounting.enforce asks for one",
        f"{shell} sacctmgr show associations` shows which there are; `sacctmgr add user {PROOF_USER} "
        "account=ACCOUNT` there adds one",
    )


def _wait(condition: Callable[[], bool], otherwise: str, advice: str) -> None:
    deadline = time.monotonic() + _KNOWN_S
    while not condition():
        if time.monotonic() >= deadline:
            raise CellblockError(f"after {_KNOWN_S:.0f} s {otherwise}", hint=advice)
        time.sleep(_POLL_S)
