# SPDX-License-Identifier: Apache-2.0
"""Recognises secrets by the name of the variable that holds them: a password has no pattern of its own.

The names are those that tools read secrets from: AWS_SECRET_ACCESS_KEY, GITHUB_TOKEN, MYSQL_ROOT_PASSWORD.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

_WORDS = {
    *("PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "SECRET", "SECRETS"),
    *("TOKEN", "CREDENTIAL", "CREDENTIALS", "APIKEY", "PAT", "JWT"),
}
# libpq, sshpass, mysql and redis-cli run these words together, or shorten them: PGPASSWORD, SSHPASS.
_ENDINGS = ("PASSWORD", "PASSWD", "PASSPHRASE", "SECRET")
_NAMES = {"SSHPASS", "MYSQL_PWD", "REDISCLI_AUTH"}
# Of Google's libraries: a file's path.
_PLACES = {"GOOGLE_APPLICATION_CREDENTIALS"}
_PAIRS = frozenset(
    (("API", "KEY"), ("ACCESS", "KEY"), ("PRIVATE", "KEY"), ("ENCRYPTION", "KEY"), ("SIGNING", "KEY"))
)
# What says where the secret is, or something about it, and is none itself.
_ABOUT = {
    *("FILE", "FILES", "PATH", "DIR", "FOLDER", "COMMAND", "CMD", "URL", "URI", "ENDPOINT"),
    *("NAME", "ID", "TYPE", "TTL", "AGE", "LENGTH", "POLICY", "PROVIDER"),
}

URL_PASSWORD = re.compile(rb"[a-z][a-z0-9+.-]*://[^\s/:@'\"$%{]+:[^\s/:@'\"${]{3,}@[A-Za-z0-9\[]")
# NAME=VALUE of a shell, or `ENV NAME VALUE` of a Containerfile; a value that is another variable's is none.
_ASSIGNMENT = re.compile(
    rb"(?:^|[\s;&|'\"])(?:(?:export|ENV|ARG)\s+)?([A-Za-z][A-Za-z0-9_]*)=[\"']?(?=[^\s\"'$;&|])", re.MULTILINE
)


def names_secret(name: str) -> bool:
    """Whether a variable of this name holds a secret, going by what people call them."""
    words = name.upper().split("_")
    if words[-1] in _ABOUT or name.upper() in _PLACES:
        return False
    if name.upper() in _NAMES or words[-1].endswith(_ENDINGS):
        return True
    return bool(_WORDS & set(words)) or any(pair in _PAIRS for pair in pairwise(words))


def secret_assignments(text: bytes) -> Iterator[str]:
    """The variables that a text gives a secret, each time that it does."""
    for found in _ASSIGNMENT.finditer(text):
        name = found[1].decode("ascii")
        if names_secret(name):
            yield name


def url_password(text: bytes) -> bool:
    """Whether a URL with a password is in a text."""
    return URL_PASSWORD.search(text) is not None
