# SPDX-License-Identifier: Apache-2.0
"""Writes the cluster's secrets as Secrets into a file of mode 0600 beside the manifests, once.

cluster/configuration/secrets.py makes them. Those that the file has already are kept.
"""

from __future__ import annotations

import base64
import binascii
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from cellblock.cluster.configuration.secrets import JWT_KEY, SLURM_KEYS, make_secrets
from cellblock.cluster.definition.external_database import read_password
from cellblock.errors import CellblockError, DefinitionError
from cellblock.files import durable
from cellblock.kubernetes.description import Description
from cellblock.kubernetes.metadata import Object, dump, metadata

HOST_KEYS = ("ssh_host_ed25519_key", "ssh_host_rsa_key")

# File of a Secret -> where `make_secrets` keeps it. Public keys are made from the others by ssh-keygen.
_KEPT = {
    "munge.key": ("munge/munge.key",),
    SLURM_KEYS: ("slurm/slurm.jwks",),
    JWT_KEY: (f"controller/{JWT_KEY}", f"accounting/{JWT_KEY}"),
    "database-password": ("database/database-password",),
    **{name: (f"login/{name}",) for name in HOST_KEYS},
}


@dataclass(frozen=True)
class SecretNames:
    """The names of the Secrets, those of the site among them."""

    key: str
    tokens: str
    database: str
    host_keys: str


def secret_names(cluster: Description) -> SecretNames:
    """What pods of `cluster` mount."""
    given = cluster.place.secrets
    return SecretNames(
        given.key or "slurm-key",
        given.tokens or "slurm-tokens",
        given.database or "slurm-database",
        given.host_keys or "login-host-keys",
    )


def key_files(cluster: Description) -> dict[str, tuple[str, ...]]:
    """The Secret by which daemons know each other, and its file."""
    return {secret_names(cluster).key: (SLURM_KEYS if cluster.file.auth == "slurm" else "munge.key",)}


def made_files(cluster: Description) -> dict[str, tuple[str, ...]]:
    """The Secrets that are made here, and their files: those that are needed and not named as existing."""
    given, names = cluster.place.secrets, secret_names(cluster)
    made = {} if given.key else key_files(cluster)
    if cluster.file.rest and not given.tokens:
        made[names.tokens] = (JWT_KEY,)
    if cluster.file.accounting and not given.database:
        made[names.database] = ("database-password",)
    if not given.host_keys:
        made[names.host_keys] = HOST_KEYS
    return made


def write_secrets(cluster: Description, path: Path) -> bool:
    """Make `path` hold the Secrets of `cluster`; what it holds already is kept. Returns whether it changed.

    Raises CellblockError when ssh-keygen is missing or a file cannot be written, DefinitionError for a file
    that holds something else.
    """
    before = _read(path)
    with tempfile.TemporaryDirectory(prefix="cellblock-secrets-") as name:
        folder = Path(name)
        for file, content in before.items():
            for place in _KEPT.get(file, ()):
                (folder / place).parent.mkdir(mode=0o700, exist_ok=True)
                (folder / place).write_bytes(content)
        external = cluster.file.accounting.external if cluster.file.accounting else None
        make_secrets(folder, cluster.file.name, tokens=bool(cluster.file.rest), auth=cluster.file.auth)
        files = {
            file: (folder / places[0]).read_bytes()
            for file, places in _KEPT.items()
            if _there(folder, places)
        }
        if external:
            files["database-password"] = read_password(external)
    text = _HEAD + dump(
        secret(cluster, name, {file: files[file] for file in wanted})
        for name, wanted in made_files(cluster).items()
    )
    try:
        if (
            path.exists()
            and path.read_text(encoding="utf-8") == text
            and path.stat().st_mode & 0o777 == 0o600
        ):
            return False
        durable.write(path, text, mode=0o600)
    except OSError as error:
        raise CellblockError(
            f"{path}: cannot be written: {error.strerror}", hint="name another file with --secrets"
        ) from error
    return True


_HEAD = """\
# The secrets of the cluster. Keep this file, and keep it from others: the next `render kubernetes` reads it.
# Apply it before the manifests; it belongs in no repository.
"""


def secret(cluster: Description, name: str, files: Mapping[str, bytes]) -> Object:
    """A Secret of `files`."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(cluster, name, "secrets"),
        "type": "Opaque",
        "data": {file: base64.b64encode(content).decode() for file, content in files.items()},
    }


def _there(folder: Path, places: tuple[str, ...]) -> bool:
    return (folder / places[0]).exists()


def _read(path: Path) -> dict[str, bytes]:
    """The files that the Secrets of `path` hold; none when it is not there."""
    hint = "restore it, or name another file with --secrets: other keys end what runs by the ones before"
    if not path.exists():
        return {}
    try:
        found: dict[str, bytes] = {}
        for one in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if one is not None:
                found |= {file: base64.b64decode(text, validate=True) for file, text in one["data"].items()}
    except OSError as error:
        raise CellblockError(f"{path}: cannot be read: {error.strerror}", hint=hint) from error
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError, AttributeError, binascii.Error) as error:
        raise DefinitionError(f"{path}: holds no Secrets of Cellblock's", hint=hint) from error
    return found
