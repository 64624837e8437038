# SPDX-License-Identifier: Apache-2.0
"""Computes the SHA-256 of files that need not fit into memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol

_CHUNK = 1 << 20


class Readable(Protocol):
    """Gives at most so many bytes, none at its end."""

    def read(self, size: int, /) -> bytes:
        """The next bytes."""


def sha256_of(stream: Readable) -> str:
    """Of what is left of a stream: 64 hexadecimal digits."""
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def sha256_of_file(path: Path) -> str:
    """Of a file's content: 64 hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return sha256_of(file)
