# SPDX-License-Identifier: Apache-2.0
"""Upgrades of a cluster that are refused, and what others refuse while one is under way."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from cellblock.cluster.changing.release_check import refuse_release
from cellblock.cluster.definition.cluster_file import load_cluster_file
from cellblock.cluster.down import take_down
from cellblock.cluster.facts import state, upgrade_record
from cellblock.cluster.facts.upgrade_record import UpgradeRecord
from cellblock.cluster.up import bring_up
from cellblock.cluster.up_request import UpRequest
from cellblock.cluster.upgrading.downgrade import find_way_back
from cellblock.cluster.upgrading.request import find_upgrade
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events

RECORD = UpgradeRecord(
    *("test", "debian13", "24.11", "debian14", "26.05", "podman", "/nowhere/backup.tar"), 3, {}
)


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CELLBLOCK_STATE", str(tmp_path))


def started(variant: str, release: str) -> None:
    """As if the cluster `test` had been started with a variant."""
    file = load_cluster_file(None).model_copy(update={"name": "test", "variant": variant})
    with state.locked("test"):
        state.write(
            state.ClusterState(
                *("test", variant, release, "podman", [], [], 2222, "/jail"),
                file=file.model_dump(mode="json", by_alias=True),
            )
        )


def asked(variant: str) -> UpRequest:
    return UpRequest(name="test", variant=variant)


def test_what_is_not_direct_is_refused_with_the_direct_steps() -> None:
    started("debian12", "22.05")
    with pytest.raises(UsageError) as caught:
        find_upgrade(asked("debian14"))
    assert "Slurm 26.05 does not read what 22.05 wrote: it reads 24.11, 25.05, 25.11" in caught.value.message
    assert "22.05 -> 23.11 -> 25.05 -> 26.05" in caught.value.hint
    with pytest.raises(UsageError, match=r"24\.11 does not read what 22\.05 wrote"):
        find_upgrade(asked("debian13"))


def test_a_downgrade_is_refused_with_the_way_back() -> None:
    started("debian14", "26.05")
    upgrade_record.write(replace(RECORD, phase="done"))
    with pytest.raises(UsageError, match=r"24\.11 does not read what 26\.05 wrote.*no downgrade") as caught:
        find_upgrade(asked("debian13"))
    assert "build.py cluster upgrade --back --name test" in caught.value.hint


def test_a_cluster_of_that_variant_is_told() -> None:
    started("debian13", "24.11")
    with pytest.raises(UsageError, match=r"of variant debian13, Slurm 24\.11, already"):
        find_upgrade(asked("debian13"))


def test_a_cluster_that_does_not_run_is_refused() -> None:
    with pytest.raises(CellblockError, match="there is no cluster test"):
        find_upgrade(asked("debian14"))


def test_the_file_that_a_cluster_was_made_from_is_kept() -> None:
    started("debian13", "24.11")
    known = state.require("test")
    changed = {**known.file, "login": {"ssh_port": 2345}}
    state.write(replace(known, file=changed))
    found = find_upgrade(asked("debian14"))
    assert found.spec.file.login.ssh_port == 2345
    assert found.spec.variant.release == "26.05"
    assert found.record is None


def test_while_one_is_under_way_others_leave_the_cluster_alone() -> None:
    started("debian13", "24.11")
    upgrade_record.write(RECORD)
    for variant in ("debian13", "debian14"):
        with pytest.raises(CellblockError, match="is being upgraded") as caught:
            bring_up(asked(variant), Events())
        assert "cluster upgrade --variant debian14 --name test" in caught.value.hint
        assert "cluster upgrade --back --name test" in caught.value.hint
    with pytest.raises(CellblockError, match="`down` would leave a cluster of two releases"):
        take_down("test", Events(), purge=False)
    with pytest.raises(CellblockError, match="cannot be upgraded to debian13"):
        find_upgrade(asked("debian13"))
    found = find_upgrade(asked("debian14"))
    assert found.record == RECORD
    assert (found.old_variant, found.old_release) == ("debian13", "24.11")


def test_while_it_is_taken_back_it_is_not_upgraded() -> None:
    started("debian14", "26.05")
    upgrade_record.write(replace(RECORD, phase="going back"))
    with pytest.raises(CellblockError, match="is being taken back") as caught:
        find_upgrade(asked("debian14"))
    assert caught.value.hint == "`build.py cluster upgrade --back --name test` goes on"


def test_state_of_a_release_that_is_not_read_is_refused() -> None:
    folder = state.folder("test") / "slurmctld"
    folder.mkdir(parents=True)
    refuse_release("test", "24.11")
    (folder / "cellblock-release").write_text("26.05\n")
    refuse_release("test", "26.05")
    with pytest.raises(UsageError, match=r"24\.11 does not read what 26\.05 wrote") as caught:
        refuse_release("test", "24.11")
    assert "a variant of Slurm 26.05" in caught.value.hint
    (folder / "cellblock-release").write_text("22.05\n")
    with pytest.raises(UsageError, match=r"26\.05 does not read what 22\.05 wrote"):
        refuse_release("test", "26.05")


def test_there_is_no_way_back_without_its_backup(tmp_path: Path) -> None:
    with pytest.raises(CellblockError, match="has had no upgrade"):
        find_way_back("test")
    started("debian14", "26.05")
    upgrade_record.write(replace(RECORD, phase="done"))
    with pytest.raises(CellblockError, match=r"/nowhere/backup\.tar: the backup .* is gone"):
        find_way_back("test")
    (tmp_path / "backup.tar").touch()
    there = replace(RECORD, phase="done", backup=str(tmp_path / "backup.tar"))
    upgrade_record.write(there)
    assert asdict(find_way_back("test")) == asdict(there)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "test"}'])
def test_a_damaged_record_is_an_error_that_names_the_file(text: str) -> None:
    started("debian13", "24.11")
    (state.folder("test") / "upgrade.json").write_text(text)
    with pytest.raises(CellblockError, match=r"upgrade\.json: cannot be read as the record"):
        upgrade_record.read("test")
