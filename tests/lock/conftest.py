# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of locks: a small archive, and a variant whose packages it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.events import Events
from cellblock.lock.archives import PackageArchive
from cellblock.lock.model import Lock
from cellblock.lock.resolve import Request, resolve
from cellblock.variants import Architecture, Variant, load_variants
from tests.packages.small_archive import SmallArchive

Resolve = Callable[..., Lock]


@pytest.fixture
def variant() -> Variant:
    """Debian 13 on amd64, whatever machine this is."""
    found = load_variants(paths.PROJECT / "images" / "variants.yaml")["debian13"]
    return replace(found, arch=Architecture("amd64", "x86_64-linux-gnu"))


@pytest.fixture
def small(tmp_path: Path) -> SmallArchive:
    """An archive with the smallest system: essential packages and apt."""
    archive = SmallArchive(tmp_path / "archive")
    archive.add("dpkg", Essential="yes", Pre_Depends="libc")
    archive.add("libc", "2.41")
    archive.add("apt", Depends="libc (>= 2)")
    return archive


@pytest.fixture
def told() -> Events:
    """What `resolved` reports to."""
    return Events()


@pytest.fixture
def resolved(variant: Variant, tmp_path: Path, small: SmallArchive, told: Events) -> Resolve:
    """Resolves requests, written as image -> (parent, packages), from `archives` (default: the small one)."""

    def run(
        requests: Mapping[str, tuple[str | None, Sequence[str]]],
        *archives: PackageArchive,
        variant: Variant = variant,
        snapshot: str | None = None,
    ) -> Lock:
        if not archives:
            small.publish()
        asked = {
            name: Request(parent, tuple(packages), f"images/{name}/image.yaml:2")
            for name, (parent, packages) in requests.items()
        }
        chosen = archives or (small.archive,)
        return resolve(variant, chosen, asked, tmp_path / "cache", told, snapshot=snapshot)

    return run
