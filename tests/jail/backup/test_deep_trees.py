# SPDX-License-Identifier: Apache-2.0
"""A user's directories without end: what is below is too deep for restic, and ends no backup."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from jail_trees import make_everything

from cellblock.events import Event, Events, Message
from cellblock.jail.assemble import assemble
from cellblock.jail.backup.backup import BackupOptions, backup
from cellblock.jail.backup.repository import find_repository
from tests.deep_tree import make_deep

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root"),
    pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed"),
]


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    make_everything(tmp_path / "image")
    assemble(str(tmp_path / "image"), tmp_path / "volume", Events())
    make_deep(tmp_path / "volume/root", 3000)
    return tmp_path / "volume"


def test_what_is_too_deep_is_told_and_is_no_failure(
    volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESTIC_PASSWORD", "of the tests")
    monkeypatch.setenv("RESTIC_CACHE_DIR", str(tmp_path / "cache"))
    said: list[Event] = []
    events = Events()
    events.subscribe(said.append)
    made = backup(volume, find_repository(str(tmp_path / "repository")), events, BackupOptions(init=True))
    assert made.unread == made.vanished == ()
    warnings = [one.text for one in said if isinstance(one, Message) and one.level == "warning"]
    assert len(warnings) == 1
    assert "1 directories hold files of paths longer than 4095 bytes, below /d/d/" in warnings[0]
