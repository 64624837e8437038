# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the package store: a small archive, a mirror that serves it, and a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tenacity import wait_fixed

from cellblock import retries
from cellblock.packages.store import PackageStore
from tests.packages.mirror import Mirror
from tests.packages.small_archive import SmallArchive


@pytest.fixture
def small(tmp_path: Path) -> SmallArchive:
    return SmallArchive(tmp_path / "archive")


@pytest.fixture
def store(tmp_path: Path) -> PackageStore:
    return PackageStore(tmp_path / "debs")


@pytest.fixture
def mirror(small: SmallArchive) -> Iterator[Mirror]:
    mirror = Mirror(small.folder)
    yield mirror
    mirror.vanish()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries again at once."""
    monkeypatch.setattr(retries, "BACKOFF", wait_fixed(0.01))
