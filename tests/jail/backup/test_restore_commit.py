# SPDX-License-Identifier: Apache-2.0
"""Putting a restored tree in place: stopped at any step, the next call finishes; jobs see old or new."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.jail.backup import restore_commit
from cellblock.jail.volume.volume import Volume

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a volume is root's")


class Killed(BaseException):
    """As by SIGKILL: nothing below may handle it."""


def make(volume: Volume, *, old: bool) -> Path:
    volume.prepare()
    if old:
        (volume.root / "etc").mkdir(parents=True)
        (volume.root / "etc/tree").write_text("old")
        (volume.private / "history/0001").mkdir(parents=True)
        (volume.private / "losses.json").write_text("old")
        (volume.private / "state.json").write_text("old")
    staging = volume.private / "staging-test"
    (staging / "root/etc").mkdir(parents=True)
    (staging / "root/etc/tree").write_text("new")
    (staging / ".cellblock/history/0002").mkdir(parents=True)
    (staging / ".cellblock/state.json").write_text("new")
    return staging


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("can_exchange", [True, False])
def test_stopped_at_each_rename_it_is_finished_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool, can_exchange: bool
) -> None:
    if not can_exchange:  # NFS
        monkeypatch.setattr(restore_commit, "exchange", lambda *arguments: False)
    rename, stopped_at = Path.rename, 0
    while True:
        volume = Volume(tmp_path / str(stopped_at))
        staging = make(volume, old=old)
        left = stopped_at

        def dying(self: Path, target: Path) -> Path:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", dying)
        try:
            restore_commit.decide(volume, staging, "a snapshot")
            restore_commit.finish(volume)
            finished = True
        except Killed:
            finished = False
        monkeypatch.setattr(Path, "rename", rename)
        if not finished:
            if restore_commit.pending(volume):
                with pytest.raises(CellblockError, match=r"a restore of .* was interrupted"):
                    volume.state()
                seen = volume.root / "etc/tree"
                if can_exchange and old:
                    assert seen.read_text() in ("old", "new"), "jobs see a whole tree all the time"
                restore_commit.finish(volume)
            elif stopped_at == 0:  # before it was decided
                assert not old or (volume.root / "etc/tree").read_text() == "old"
                stopped_at += 1
                continue
        assert (volume.root / "etc/tree").read_text() == "new"
        assert (volume.private / "state.json").read_text() == "new"
        assert [one.name for one in (volume.private / "history").iterdir()] == ["0002"]
        assert not (volume.private / "losses.json").exists()
        kept = list(volume.private.glob("replaced-*"))
        assert len(kept) == old
        if old:
            assert (kept[0] / "root/etc/tree").read_text() == "old"
            assert sorted(one.name for one in (kept[0] / ".cellblock").iterdir()) == [
                "history",
                "losses.json",
                "state.json",
            ]
        if finished:
            assert stopped_at > 4
            return
        stopped_at += 1
