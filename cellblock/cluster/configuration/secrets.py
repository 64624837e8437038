# SPDX-License-Identifier: Apache-2.0
"""Makes the secrets of a cluster when the cluster is made: no image carries one.

`cluster rotate` can replace each. Some are in several files, which differ for a moment meanwhile: a record
says so (cellblock.cluster.facts.rotation_record).

    secrets/munge/munge.key                     what workers see
    secrets/controller/{munge.key,jwt_hs256.key}           what slurmctld sees
    secrets/login/{munge.key,ssh_host_*,authorized_keys}   what the login node sees
    secrets/accounting/{munge.key,jwt_hs256.key,database-password}   what slurmdbd sees
    secrets/slurm/slurm.jwks                    with auth/slurm, for all of them in place of munge.key
    secrets/database/database-password                     what the database sees
    secrets/ssh/id_ed25519                      the key that opens a session on the login node

Every file is 0600 and every folder 0700, from the moment it exists.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from cellblock.cluster.configuration import slurm_keys, ssh_keys
from cellblock.cluster.configuration.slurm_keys import KeySet
from cellblock.cluster.definition.names import Auth
from cellblock.errors import CellblockError
from cellblock.files import durable as records

# 1024 bits, the default of mungekey(8).
_MUNGE_KEY_BYTES = 128
# slurmdbd's for the database; in hexadecimal, so that no quoting can break it.
_PASSWORD_BYTES = 24
_FOLDERS = ("munge", "slurm", "controller", "login", "ssh", "accounting", "database")
# HS256: as long as its hash, which RFC 7518, 3.2, asks for at least.
_JWT_KEY_BYTES = 32
JWT_KEY = "jwt_hs256.key"
"""The file of the key of tokens; only where the cluster has a REST API."""
# Who checks tokens: slurmctld makes them, too.
_JWT_FOLDERS = ("controller", "accounting")
SLURM_KEYS = "slurm.jwks"
"""The file of auth/slurm's keys."""
OLD_SLURM_KEY = "old-slurm.jwks"
"""The key of before, while a rotation of it is not over."""
# By which Slurm's daemons know each other; workers and the exporter see the folder, others a copy.
_DAEMONS_KEY: Mapping[Auth, str] = {"munge": "munge.key", "slurm": SLURM_KEYS}
_DAEMONS = ("controller", "login", "accounting")


def make_secrets(
    folder: Path,
    cluster: str,
    *,
    tokens: bool = False,
    password: bytes | None = None,
    auth: Auth = "munge",
) -> None:
    """Make what is missing of the secrets of `cluster` below `folder`; what exists is kept.

    `tokens`: the key of tokens, too; without, it is removed. `password` is slurmdbd's for a database that is
    not the cluster's own. `auth` says which key the daemons have; the other one is removed.

    Raises CellblockError when ssh-keygen is missing or a file cannot be written.
    """
    try:
        for place in (folder, *(folder / name for name in _FOLDERS)):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_daemons_key(folder, auth)
        if not tokens:
            for name in _JWT_FOLDERS:
                (folder / name / JWT_KEY).unlink(missing_ok=True)
        elif len({_read(folder / name / JWT_KEY) for name in _JWT_FOLDERS} - {b""}) != 1:
            # None yet, or a change of it was interrupted.
            make_jwt_key(folder)
        own = folder / "database" / "database-password"
        if not own.exists():
            _write(own, secrets.token_hex(_PASSWORD_BYTES).encode())
        _write(folder / "accounting" / "database-password", password or own.read_bytes())
        for name, kind in ssh_keys.HOST_KEYS.items():
            if not (folder / "login" / name).exists():
                ssh_keys.make(folder / "login" / name, kind, f"{cluster}-login")
        if not ssh_key(folder).exists():
            ssh_keys.make(ssh_key(folder), ssh_keys.LOGIN_KEY, f"cellblock-{cluster}")
        _write(folder / "login" / "authorized_keys", (folder / "ssh" / "id_ed25519.pub").read_bytes())
    except OSError as error:
        raise CellblockError(
            f"{error.filename or folder}: cannot be written: {error.strerror}",
            hint="make room, or set CELLBLOCK_STATE to a folder that can be written",
        ) from error


def _make_daemons_key(folder: Path, auth: Auth) -> None:
    for other, name in _DAEMONS_KEY.items():
        for place in (other, *_DAEMONS):
            if other != auth:
                (folder / place / name).unlink(missing_ok=True)
    if (folder / auth / _DAEMONS_KEY[auth]).exists():
        _copy_daemons_key(folder, auth)
    elif auth == "munge":
        make_munge_key(folder)
    else:
        make_slurm_key(folder)


def make_jwt_key(folder: Path) -> None:
    """Make a new key of tokens below `folder`: whoever reads it refuses tokens of the one before."""
    key = secrets.token_bytes(_JWT_KEY_BYTES)
    for name in _JWT_FOLDERS:
        _write(folder / name / JWT_KEY, key)


def make_password(folder: Path) -> None:
    """Make slurmdbd's password of the cluster's own database anew."""
    password = secrets.token_hex(_PASSWORD_BYTES).encode()
    for name in ("database", "accounting"):
        _write(folder / name / "database-password", password)


def make_login_key(folder: Path, cluster: str) -> None:
    """Make the key that opens a session on the login node anew."""
    ssh_keys.make(ssh_key(folder), ssh_keys.LOGIN_KEY, f"cellblock-{cluster}")
    _write(folder / "login" / "authorized_keys", (folder / "ssh" / "id_ed25519.pub").read_bytes())


def make_host_keys(folder: Path, cluster: str) -> None:
    """Make the login node's host keys anew."""
    for name, kind in ssh_keys.HOST_KEYS.items():
        ssh_keys.make(folder / "login" / name, kind, f"{cluster}-login")


def make_munge_key(folder: Path) -> None:
    """Make munge's key anew, for all who have it."""
    _write(folder / "munge" / "munge.key", secrets.token_bytes(_MUNGE_KEY_BYTES))
    _copy_daemons_key(folder, "munge")


def make_slurm_key(folder: Path) -> None:
    """Make auth/slurm's key anew, for all who have it: the only one, from now on."""
    write_slurm_keys(folder, slurm_keys.only(slurm_keys.new_key()))
    (folder / OLD_SLURM_KEY).unlink(missing_ok=True)


def read_slurm_keys(folder: Path) -> KeySet:
    """The keys of auth/slurm. Raises OSError, and ValueError when the file holds none."""
    return slurm_keys.parse((folder / "slurm" / SLURM_KEYS).read_bytes())


def write_slurm_keys(folder: Path, keys: KeySet) -> None:
    """Give `keys` to all who have auth/slurm's."""
    _write(folder / "slurm" / SLURM_KEYS, slurm_keys.text(keys))
    _copy_daemons_key(folder, "slurm")


def ssh_key(folder: Path) -> Path:
    """The private key that opens a session on the login node."""
    return folder / "ssh" / "id_ed25519"


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _write(path: Path, content: bytes) -> None:
    """Write by rename; the file is never readable by others, not even while it is written."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    records.sync_directory(path.parent)


def _copy_daemons_key(folder: Path, auth: Auth) -> None:
    name = _DAEMONS_KEY[auth]
    key = (folder / auth / name).read_bytes()
    for place in _DAEMONS:
        _write(folder / place / name, key)
