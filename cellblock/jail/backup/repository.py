# SPDX-License-Identifier: Apache-2.0
"""Says where a restic repository is, and where restic reads its password from.

Both are passed in the environment and not on a command line: a location can contain a login
(`rest:https://user:word@host/`), and every user of a machine can read the arguments of all programs.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cellblock.errors import CellblockError, UsageError

_PASSWORD = ("RESTIC_PASSWORD_FILE", "RESTIC_PASSWORD_COMMAND", "RESTIC_PASSWORD")
_FILES = (
    *("RESTIC_CACERT", "RESTIC_TLS_CLIENT_CERT", "RESTIC_CACHE_DIR", "RCLONE_CONFIG", "TMPDIR"),
    *("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "GOOGLE_APPLICATION_CREDENTIALS"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Files and folders that restic's environment names, relative to where we are: it runs in another folder."""


@dataclass(frozen=True)
class Repository:
    """`location` as restic writes it: a path, `s3:...`, `rest:...`, `rclone:...`, `sftp:...`."""

    location: str
    environment: Mapping[str, str] = field(repr=False)
    """What restic gets beside our own environment."""

    def __str__(self) -> str:
        """The location without a login's password."""
        return shown(self.location)


def shown(text: str) -> str:
    """`text` without the passwords of logins in addresses."""
    return re.sub(r"(//[^/:@\s]+):[^/@\s]+@", r"\1:***@", text)


def find_repository(
    location: str | None, password_file: Path | None = None, password_command: str | None = None
) -> Repository:
    """The repository at `location`, or the one that restic's own variables name.

    Raises UsageError when nothing names it or its password, CellblockError for an unreadable password file.
    """
    given = os.environ
    environment: dict[str, str] = {}
    if location is None:
        file = given.get("RESTIC_REPOSITORY_FILE", "")
        location = given.get("RESTIC_REPOSITORY") or (
            _read(Path(file), "RESTIC_REPOSITORY_FILE") if file else ""
        )
    if not location:
        raise UsageError(
            "no repository is named",
            hint="give it after the volume, or set RESTIC_REPOSITORY or RESTIC_REPOSITORY_FILE",
        )
    if not re.match(r"(s3|rest|sftp|rclone|b2|azure|gs|swift):", location):
        # restic runs in another folder.
        location = str(Path(location.removeprefix("local:")).absolute())
    environment["RESTIC_REPOSITORY"] = location
    environment["RESTIC_REPOSITORY_FILE"] = ""
    if password_file and password_command:
        raise UsageError("--password-file and --password-command exclude each other", hint="leave one out")
    if password_file:
        _read(password_file, "--password-file")
        chosen = {"RESTIC_PASSWORD_FILE": str(password_file.absolute())}
    elif password_command:
        chosen = {"RESTIC_PASSWORD_COMMAND": _here(password_command)}
    else:
        chosen = _password_of(given, location)
    environment.update({name: str(Path(given[name]).absolute()) for name in _FILES if given.get(name)})
    environment.update(dict.fromkeys(_PASSWORD, "") | chosen)
    return Repository(location, environment)


def _password_of(given: Mapping[str, str], location: str) -> dict[str, str]:
    """The first of restic's variables that says the password, as it is understood in any folder."""
    name = next((name for name in _PASSWORD if given.get(name)), None)
    if name is None:
        raise UsageError(
            f"nothing says the password of {shown(location)}",
            hint="--password-file FILE, --password-command COMMAND, or restic's variables "
            "RESTIC_PASSWORD_FILE, RESTIC_PASSWORD_COMMAND, RESTIC_PASSWORD",
        )
    value = given[name]
    if name == "RESTIC_PASSWORD_FILE":
        _read(Path(value), name)
        value = str(Path(value).absolute())
    elif name == "RESTIC_PASSWORD_COMMAND":
        value = _here(value)
    return {name: value}


def _here(command: str) -> str:
    """Make a user's command run in the folder that Cellblock was started in."""
    return f"env -C {shlex.quote(str(Path.cwd()))} {command}"


def _read(path: Path, what: str) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise CellblockError(
            f"{what}: cannot read {path}: {error.strerror}", hint="name a file that root can read"
        ) from None
    if not text:
        raise CellblockError(f"{what}: {path} is empty", hint="write one line into it")
    return text
