# SPDX-License-Identifier: Apache-2.0
"""What programs in another root see of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bind:
    """A file or folder of this machine seen in a root at `target`, an absolute path."""

    source: Path
    target: str
    writable: bool = False
