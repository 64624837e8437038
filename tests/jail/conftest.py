# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the jail: trees to assemble from, volumes, and a writer's lock that expires soon."""

from __future__ import annotations

import fcntl
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
from jail_trees import make_everything
from stopped_writer import LEASE_S
from upgraded_jail import FOO, FOO2, Jail

from cellblock.events import Events
from cellblock.jail.volume import volume
from cellblock.jail.volume.writer_lock import WriterLock


@pytest.fixture
def everything(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "everything"
    make_everything(root)
    yield root
    (root / "shut").chmod(0o755)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A root with a program, a directory and a user's home, and nothing special."""
    root = tmp_path / "small"
    (root / "home/ada").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "etc/os-release").write_text("ID=small\n")
    return root


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def jail(tmp_path: Path) -> Jail:
    """A volume for upgrades, not assembled yet."""
    return Jail(tmp_path)


@pytest.fixture
def upgraded(jail: Jail) -> Jail:
    """A volume of which a package was upgraded."""
    jail.assemble(FOO)
    jail.image("new", FOO2)
    jail.upgrade()
    return jail


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process counts as another host than the writers of stopped_writer.py, and has their lease."""
    monkeypatch.setattr(fcntl, "lockf", lambda *arguments: None)  # each host has its own
    monkeypatch.setattr(volume, "WriterLock", functools.partial(WriterLock, lease_s=LEASE_S))
