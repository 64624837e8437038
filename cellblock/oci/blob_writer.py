# SPDX-License-Identifier: Apache-2.0
"""Writes one blob of a layout, and computes its digest meanwhile, for layer.py and layout.py."""

from __future__ import annotations

import hashlib
from typing import IO


class BlobWriter:
    """Writes one blob and knows its digest and size; see `Layout.writer`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0
        self.digest = ""
        """ "sha256:...", when the writer is done."""

    def write(self, data: bytes | memoryview) -> int:
        """Append `data`."""
        self._hash.update(data)
        self._file.write(data)
        self.size += len(data)
        return len(data)

    def finish(self) -> None:
        """Settle the digest."""
        self.digest = f"sha256:{self._hash.hexdigest()}"
