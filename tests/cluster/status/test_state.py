# SPDX-License-Identifier: Apache-2.0
"""What is kept of a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.cluster.facts import state
from cellblock.errors import CellblockError

NODES = ["worker-1", "worker-2"]
STATE = state.ClusterState("test", "debian13", "24.11", "podman", NODES, NODES, 2222, "/volume", "f" * 64)


def test_what_is_written_is_read() -> None:
    with state.locked("test"):
        state.write(STATE)
        state.write(replace(STATE, nodes=["worker-1"]))
    assert state.read("test") == replace(STATE, nodes=["worker-1"])
    assert not list(state.folder("test").glob("*.new"))


def test_there_is_no_cluster_before_one_is_made() -> None:
    assert state.read("test") is None


def test_a_damaged_file_is_named_with_the_way_out() -> None:
    with state.locked("test"):
        (state.folder("test") / "state.json").write_text("{")
    with pytest.raises(CellblockError, match=r"test/state\.json: cannot be read") as caught:
        state.read("test")
    assert "build.py down" in caught.value.hint


def test_a_file_of_another_version_is_called_that() -> None:
    with state.locked("test"):
        (state.folder("test") / "state.json").write_text('{"name": "test", "colour": "red"}')
    with pytest.raises(CellblockError, match=r"test/state\.json: was written by another version") as caught:
        state.read("test")
    assert "use the checkout that started it" in caught.value.hint


def test_one_command_at_a_time() -> None:
    with state.locked("test"), pytest.raises(CellblockError, match="another process"), state.locked("test"):
        pass


def test_forgetting_keeps_what_is_not_its_own() -> None:
    with state.locked("test"):
        state.write(STATE)
        for name in ("config", "secrets", "slurmctld", "database", "volume"):
            (state.folder("test") / name / "below").mkdir(parents=True)
        state.forget("test")
    assert {path.name for path in state.folder("test").iterdir()} == {
        "slurmctld",
        "database",
        "volume",
        "lock",
    }


def test_a_state_folder_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CELLBLOCK_STATE", str(tmp_path / "file"))
    with pytest.raises(CellblockError, match=r"file/clusters/test/state\.json: Not a directory") as caught:
        state.read("test")
    assert "CELLBLOCK_STATE" in caught.value.hint


def test_a_state_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CELLBLOCK_STATE", str(tmp_path / "file"))
    with pytest.raises(CellblockError, match="cannot be written") as caught, state.locked("test"):
        pass
    assert "CELLBLOCK_STATE" in caught.value.hint
