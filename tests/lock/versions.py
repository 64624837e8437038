# SPDX-License-Identifier: Apache-2.0
"""Gives the version of each package that a lock names for an image, to compare in tests."""

from __future__ import annotations

from cellblock.lock.model import Lock


def versions(lock: Lock, image: str) -> dict[str, str]:
    """The packages of an image, by name."""
    return {lock.packages[key].name: lock.packages[key].version for key in lock.images[image].packages}
