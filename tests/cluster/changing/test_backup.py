# SPDX-License-Identifier: Apache-2.0
"""What is no file of a backup; tests/integration/roles/test_backup.py restores one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.cluster.backup import restore
from cellblock.errors import UsageError
from cellblock.events import Events


@pytest.mark.parametrize(("name", "says"), [("none.tar", "there is no file"), ("folder", "is no file")])
def test_a_backup_that_is_not_there_is_called_that(name: str, says: str, tmp_path: Path) -> None:
    """and no advice is given about the disk, which has nothing to do with it"""
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match=says) as caught:
        restore("test", tmp_path / name, Events())
    assert str(tmp_path / name) in caught.value.message
    assert "cluster backup" in caught.value.hint
    assert "disk" not in caught.value.hint
