# SPDX-License-Identifier: Apache-2.0
"""Says where Cellblock keeps files on this machine.

`CELLBLOCK_STATE` (default /var/lib/cellblock) holds what must not be lost: clusters and their
secrets and volumes. `CELLBLOCK_CACHE` (default /var/cache/cellblock) holds what can be made again.
"""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
"""Root of the checkout: holds images/, spank_jail/, deploy/."""

JAIL_RELEASE = "etc/cellblock/jail-release"
"""File of a jail, below its root, that says which variant and which Slurm it is of; no other image has it."""


def state() -> Path:
    """Directory of clusters, secrets and volumes; not created here."""
    return Path(os.environ.get("CELLBLOCK_STATE", "/var/lib/cellblock"))


def cache() -> Path:
    """Directory of downloads and other things that can be made again; not created here."""
    return Path(os.environ.get("CELLBLOCK_CACHE", "/var/cache/cellblock"))


def packages() -> Path:
    """Directory of the package store, which all builds of this machine share; not created here."""
    return cache() / "debs"
