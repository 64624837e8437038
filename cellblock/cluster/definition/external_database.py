# SPDX-License-Identifier: Apache-2.0
"""Describes the accounting's database on a site's own server: address, user, password and certificates.

It is the part `accounting.external` of the cluster file. Password and certificates are in files of the site,
which this module reads.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, WrapValidator

from cellblock.cluster.definition.strict_model import Strict
from cellblock.errors import CellblockError
from cellblock.yaml_source import FaultAt, nearest

# A value in slurmdbd.conf and in MariaDB's option files: nothing that ends it, its line or a quotation.
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?")
_IDENTIFIER = re.compile(r"[A-Za-z0-9_]{1,64}")
_PASSWORD = re.compile(rb"[!$%&()*+,\-./0-9:;<=>?@A-Z\[\]^_a-z{|}~]{1,128}")
_PATH = re.compile(r"/[^\x00-\x1f]{1,4000}")
_WHAT = "must be `embedded`, or a mapping with the keys host, password_from and tls"


def _host(value: str) -> str:
    if not _HOST.fullmatch(value):
        raise ValueError(f"'{value}' is no name or address of a host")
    return value


def _identifier(value: str) -> str:
    if not _IDENTIFIER.fullmatch(value):
        raise ValueError(f"'{value}' cannot be used here: letters, digits and '_', at most 64")
    return value


def _absolute(value: str) -> str:
    if not _PATH.fullmatch(value):
        raise ValueError(f"'{value}' is no absolute path of this machine")
    return value


Host = Annotated[str, AfterValidator(_host)]
Identifier = Annotated[str, AfterValidator(_identifier)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class DatabaseTls(Strict):
    """How the connection to the database is protected: slurmdbd's StorageParameters (slurmdbd.conf(5))."""

    ca_from: AbsolutePath
    """The file, on this machine, of the authorities that the server's certificate must be from: PEM."""


class ExternalDatabase(Strict):
    """A MariaDB or MySQL of the site's, with a database for slurmdbd and a user who may do all in it."""

    host: Host
    """The name or address that it is reached at, from containers, and that its certificate is for."""
    port: int = Field(default=3306, ge=1, le=65535)
    """Its port."""
    name: Identifier = "slurm_acct_db"
    """The database on it."""
    user: Identifier = "slurm"
    """The user to connect as."""
    password_from: AbsolutePath
    """The file, on this machine, that holds the user's password."""
    tls: DatabaseTls | None
    """Whom to trust, `{ca_from: FILE}`; `null`: whoever is between reads along."""


def _database(value: Any, _handler: Callable[[Any], Any]) -> Any:
    """One of the two; a fault is told at its own key, which a union of models would not do."""
    if value == "embedded" or isinstance(value, ExternalDatabase):
        return value
    if not isinstance(value, dict):
        raise ValueError(_WHAT)
    try:
        return ExternalDatabase.model_validate(value)
    except ValidationError as error:
        # A key that is spelt wrong is missing, too: that one explains it.
        fault = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        model = DatabaseTls if len(fault["loc"]) > 1 else ExternalDatabase
        key = str(fault["loc"][-1])
        text = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "missing":
            text = f"missing: {(model.model_fields[key].description or '').rstrip('.')}"
        elif fault["type"] == "extra_forbidden":
            text = f"unknown key; {nearest(key, model.model_fields)}"
        elif fault["type"] == "model_type":
            text = "must be a mapping: {ca_from: FILE}; or null"
        raise FaultAt(text, *fault["loc"]) from error


Database = Annotated[ExternalDatabase | Literal["embedded"], WrapValidator(_database)]


def read_password(database: ExternalDatabase) -> bytes:
    """The password of the user. Raises CellblockError when the file cannot be read, or holds none."""
    path = Path(database.password_from)
    try:
        found = path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise _unreadable(path, "accounting.database.password_from", error) from error
    if not _PASSWORD.fullmatch(found):
        raise CellblockError(
            f"{path} (accounting.database.password_from): holds no password that Slurm's files can: one line "
            "of 1 to 128 letters, digits and punctuation, without spaces, quotes, '#', '\\' and '`'",
            hint="give the database's user another password, and write it there",
        )
    return found


def changed_ns(database: ExternalDatabase) -> int:
    """When the file of the password was written, in ns since the epoch; 0 while there is none."""
    try:
        return Path(database.password_from).stat().st_mtime_ns
    except OSError:
        return 0


def read_authorities(tls: DatabaseTls) -> str:
    """The certificates to trust, PEM. Raises CellblockError when the file cannot be read, or holds none."""
    path = Path(tls.ca_from)
    try:
        text = path.read_text(encoding="utf-8")
        ssl.create_default_context().load_verify_locations(cadata=text)
    except ssl.SSLError as error:
        raise CellblockError(
            f"{path} (accounting.database.tls.ca_from): holds no certificate: {error}",
            hint="write the certificate of the authority there, from `-----BEGIN CERTIFICATE-----` on",
        ) from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, "accounting.database.tls.ca_from", error) from error
    return text


def _unreadable(path: Path, key: str, error: Exception) -> CellblockError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return CellblockError(
        f"{path} ({key}): cannot be read: {reason}", hint="correct the path in the cluster file, or the file"
    )
