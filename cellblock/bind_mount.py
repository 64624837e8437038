# SPDX-License-Identifier: Apache-2.0
"""Defines a bind mount as data: one file or folder of this machine that programs in another root see.

build/ and slurm/ both use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BindMount:
    """A file or folder of this machine seen in a root at `target`, an absolute path."""

    source: Path
    target: str
    writable: bool = False
