# SPDX-License-Identifier: Apache-2.0
"""Reads a whole manifest at once, for tests to compare; Cellblock itself reads it line by line."""

from __future__ import annotations

from pathlib import Path

from cellblock.jail.tree import manifest
from cellblock.jail.tree.entry import Entry
from cellblock.jail.tree.manifest_diff import check


def read_manifest(path: Path) -> list[Entry]:
    """The entries. Raises CellblockError when it is damaged."""
    check(path)
    return [manifest.parse(line) for line in path.read_bytes().split(b"\n")[1:-2]]
