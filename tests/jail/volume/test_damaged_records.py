# SPDX-License-Identifier: Apache-2.0
"""Records of a volume that are damaged, foreign or too new: said, with what to do, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from upgraded_jail import FOO, Jail

from cellblock.errors import CellblockError
from cellblock.events import Event, Message
from cellblock.jail import changes
from cellblock.jail.apply.transaction_runner import open_volume
from cellblock.jail.assemble import assemble
from cellblock.jail.backup.backup import BackupOptions, backup
from cellblock.jail.backup.repository import Repository
from cellblock.jail.merge import change_plan
from cellblock.jail.upgrade import plan_upgrade, upgrade
from cellblock.jail.verify import verify
from cellblock.jail.volume import history

Command = Callable[[Jail], object]
COMMANDS: dict[str, Command] = {
    "verify": lambda jail: verify(jail.path, jail.events),
    "repair": lambda jail: verify(jail.path, jail.events, repair=True),
    "diff": lambda jail: list(changes.changes(jail.path)),
    "plan": lambda jail: plan_upgrade(str(jail.folder / "old"), jail.path),
    "upgrade": lambda jail: upgrade(str(jail.folder / "old"), jail.path, jail.events),
    "rollback": lambda jail: jail.rollback(),
}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:30])


def test_a_manifest_that_is_damaged_is_said_by_every_command(upgraded: Jail) -> None:
    manifest = upgraded.path / ".cellblock/manifest"
    cut(manifest)
    for name, command in COMMANDS.items():
        if name != "rollback":  # it needs those of the upgrade alone
            with pytest.raises(CellblockError, match="damaged manifest") as caught:
                command(upgraded)
            assert "jail restore" in caught.value.hint, name
    manifest.unlink()
    for name, command in COMMANDS.items():
        with pytest.raises(CellblockError, match="manifest is missing") as caught:
            command(upgraded)
        assert "jail restore" in caught.value.hint, name
    assert "foo 2" in upgraded.read("usr/bin/foo")


def test_a_state_that_is_none_is_said(upgraded: Jail) -> None:
    for text in ("", "[]", "3", '{"version": 1}'):
        (upgraded.path / ".cellblock/state.json").write_text(text)
        for command in COMMANDS.values():
            with pytest.raises(CellblockError, match=r"state\.json: damaged") as caught:
                command(upgraded)
            assert caught.value.hint


def test_records_of_a_newer_cellblock_are_not_called_damaged(upgraded: Jail) -> None:
    path = upgraded.path / ".cellblock/state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 3}))
    with pytest.raises(CellblockError, match=r"is of version 3.*reads versions up to 2") as caught:
        upgraded.rollback()
    assert "newer" in caught.value.hint


def test_a_manifest_of_a_newer_cellblock_is_not_called_damaged(upgraded: Jail) -> None:
    manifest = upgraded.path / ".cellblock/manifest"
    text = manifest.read_bytes().replace(b"cellblock-manifest 1\n", b"cellblock-manifest 12\n", 1)
    manifest.write_bytes(text)
    for name, command in COMMANDS.items():
        if name == "rollback":  # it needs those of the upgrade alone
            continue
        said = r"manifest is of version 12, and this Cellblock reads versions up to 1; nothing was changed"
        with pytest.raises(CellblockError, match=said) as caught:
            command(upgraded)
        assert "use the Cellblock that wrote it" in caught.value.hint, name
    assert manifest.read_bytes() == text
    assert "foo 2" in upgraded.read("usr/bin/foo")


def test_a_plan_of_a_newer_cellblock_is_not_called_damaged(upgraded: Jail) -> None:
    plan = upgraded.path / ".cellblock/history/0001/plan"
    text = plan.read_text()
    plan.write_text(text.replace('"format": 1', '"format": 7', 1))
    assert plan.read_text() != text
    with pytest.raises(CellblockError, match=r"plan is of version 7.*reads versions up to 1") as caught:
        upgraded.rollback()
    assert "newer" in caught.value.hint
    told: list[Event] = []
    upgraded.events.subscribe(told.append)
    verify(upgraded.path, upgraded.events)
    warnings = [one.text for one in told if isinstance(one, Message) and one.level == "warning"]
    assert [text for text in warnings if "is of version 7" in text and "mv " not in text], warnings


def test_a_damaged_copy_of_the_databases_is_found_again(upgraded: Jail) -> None:
    cut(upgraded.path / ".cellblock/controls")
    assert verify(upgraded.path, upgraded.events).is_clean  # users changed nothing of them
    upgraded.tree.install(FOO)
    with pytest.raises(CellblockError, match="controls is damaged") as caught:
        verify(upgraded.path, upgraded.events)
    assert "jail verify" in caught.value.hint
    verify(upgraded.path, upgraded.events, repair=True)  # from the image
    assert verify(upgraded.path, upgraded.events).is_clean


@pytest.mark.parametrize("record", ["plan", "before", "old/manifest", "old/state.json"])
def test_an_upgrade_whose_record_is_damaged_is_not_undone(upgraded: Jail, record: str) -> None:
    folder = upgraded.path / ".cellblock/history/0001"
    cut(folder / record)
    if record == "plan":  # it says what users kept
        told: list[Event] = []
        upgraded.events.subscribe(told.append)
        assert verify(upgraded.path, upgraded.events).is_clean
        warnings = [one.text for one in told if isinstance(one, Message) and one.level == "warning"]
        assert any("history/0001" in text and f"mv {folder}" in text for text in warnings)
        with pytest.raises(CellblockError, match=r"history/0001.*is damaged") as caught:
            verify(upgraded.path, upgraded.events, repair=True)
        assert f"mv {folder}" in caught.value.hint
    with pytest.raises(CellblockError, match=r"history/0001.*is damaged.*nothing was changed") as caught:
        upgraded.rollback()
    assert f"mv {folder}" in caught.value.hint
    assert "foo 2" in upgraded.read("usr/bin/foo")
    upgraded.upgrade("old")  # goes on all the same
    assert "foo 1" in upgraded.read("usr/bin/foo")
    folder.rename(upgraded.path / ".cellblock/damaged-0001")
    assert upgraded.rollback().plan.operation == "rollback"
    assert "foo 2" in upgraded.read("usr/bin/foo")


@pytest.mark.parametrize("left", [b"", None], ids=["empty", "missing"])
def test_the_last_record_of_an_upgrade_is_made_again_of_the_others(
    upgraded: Jail, left: bytes | None
) -> None:
    """A power cut left it empty, when it was not flushed."""
    path = upgraded.path / ".cellblock/history/0001/finished.json"
    volume = open_volume(upgraded.path)[0]
    before = history.read(volume)
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    after = history.read(volume)
    assert [replace(one, finished_at="") for one in after] == [replace(one, finished_at="") for one in before]
    assert verify(upgraded.path, upgraded.events, repair=True).is_clean
    assert upgraded.rollback().plan.operation == "rollback"
    assert "foo 1" in upgraded.read("usr/bin/foo")


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cellblock.cli", "jail", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("emptied", [True, False], ids=["empty", "zeros"])
@pytest.mark.parametrize("record", ["plan", "before", "after", "old/manifest", "old/state.json"])
def test_a_record_that_a_power_cut_emptied_is_listed_as_damaged(
    upgraded: Jail, record: str, *, emptied: bool
) -> None:
    path = upgraded.path / ".cellblock/history/0001" / record
    path.write_bytes(b"" if emptied else bytes(path.stat().st_size))
    listed = ran("history", str(upgraded.path))
    assert listed.returncode == 0
    assert re.search(r"^ +1  .*changes\n +damaged: .*history/0001.*is damaged", listed.stdout, re.MULTILINE)
    assert f"mv {path.parents[len(Path(record).parts) - 1]} " in listed.stdout
    (one,) = json.loads(ran("history", str(upgraded.path), "--json").stdout)["history"]
    assert "is damaged" in one["error"]
    assert one["operation"] == "upgrade"
    assert "mv " in one["next"]
    told = ran("status", str(upgraded.path))
    assert told.returncode == 1
    assert "0 can be undone" in told.stdout
    assert "history/0001" in told.stdout
    assert ran("rollback", str(upgraded.path)).returncode == 1
    assert "foo 2" in upgraded.read("usr/bin/foo")


def test_history_calls_nothing_damaged_that_is_whole(upgraded: Jail) -> None:
    upgraded.write("usr/bin/foo", "broken")
    verify(upgraded.path, upgraded.events, repair=True)
    upgraded.rollback()
    upgraded.rollback()
    assert len(history.read(open_volume(upgraded.path)[0])) == 4
    listed = ran("history", str(upgraded.path))
    assert "damaged" not in listed.stdout
    assert ran("status", str(upgraded.path)).returncode == 0


@pytest.mark.parametrize("record", ["before", "old/manifest", "kept"])
def test_what_nobody_undoes_again_needs_its_plan_alone(upgraded: Jail, record: str) -> None:
    upgraded.rollback()
    for number in ("0001", "0002"):
        path = upgraded.path / ".cellblock/history" / number / record
        shutil.rmtree(path) if path.is_dir() else path.write_bytes(b"")
    assert "damaged" not in ran("history", str(upgraded.path)).stdout
    (upgraded.path / ".cellblock/history/0002/plan").write_bytes(b"")
    assert "it is not known what users kept then" in ran("history", str(upgraded.path)).stdout


@pytest.mark.parametrize("left", [b"", None], ids=["empty", "missing"])
def test_the_date_of_an_upgrade_whose_last_record_is_gone_stays(upgraded: Jail, left: bytes | None) -> None:
    """A rollback writes its note into the same folder."""
    folder = upgraded.path / ".cellblock/history/0001"
    long_ago = 1_700_000_000
    (folder / "finished.json").write_bytes(b"")
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (long_ago, long_ago))
    if left is None:
        (folder / "finished.json").unlink()
    volume = open_volume(upgraded.path)[0]
    assert [one.finished_at for one in history.read(volume)] == ["2023-11-14T22:13:20+00:00"]
    upgraded.rollback()
    assert history.read(volume)[0].finished_at == "2023-11-14T22:13:20+00:00"
    assert history.read(volume)[0].undone_by == 2


def _remove(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("damage", [_remove, _empty])
@pytest.mark.parametrize("which", ["all", "program"])
def test_kept_files_that_are_gone_are_no_rollback_of_nothing(
    upgraded: Jail, damage: Callable[[Path], None], which: str
) -> None:
    """It would note the upgrade as undone, and leave the new files, or write empty ones."""
    kept = upgraded.path / ".cellblock/history/0001/kept"
    chosen = [one for one in kept.iterdir() if which == "all" or b"echo foo 1" in one.read_bytes()]
    assert chosen
    for one in chosen:
        damage(one)
    with pytest.raises(
        CellblockError, match=r"history/0001.*is damaged.*kept/.*nothing was changed"
    ) as caught:
        upgraded.rollback()
    assert "mv " in caught.value.hint
    assert "foo 2" in upgraded.read("usr/bin/foo")
    assert [one.undone_by for one in history.read(open_volume(upgraded.path)[0])] == [0]
    assert upgraded.upgrade("old").changed  # the way that is left
    assert "foo 1" in upgraded.read("usr/bin/foo")


def test_a_plan_that_lost_its_actions_is_no_rollback_of_nothing(upgraded: Jail) -> None:
    path = upgraded.path / ".cellblock/history/0001/plan"
    path.write_text(path.read_text().splitlines()[0] + '\n{"end": 0}\n')
    with pytest.raises(CellblockError, match=r"has 0 actions, and .* were carried out"):
        upgraded.rollback()
    assert "foo 2" in upgraded.read("usr/bin/foo")


def test_an_upgrade_whose_record_is_damaged_holds_up_no_other(upgraded: Jail) -> None:
    upgraded.upgrade("old")
    cut(upgraded.path / ".cellblock/history/0001/plan")
    (upgraded.path / ".cellblock/history/0001/finished.json").write_bytes(b"")
    listed = history.listed(open_volume(upgraded.path)[0])
    assert [type(one) for one in listed] == [history.Damaged, history.Done]
    assert upgraded.rollback().plan.operation == "rollback"
    assert "foo 2" in upgraded.read("usr/bin/foo")


def test_history_counts_on_beyond_four_digits(upgraded: Jail) -> None:
    records = upgraded.path / ".cellblock/history"
    (records / "0001").rename(records / "9999")
    upgraded.upgrade("old")
    upgraded.upgrade("new")
    assert [one.number for one in history.read(open_volume(upgraded.path)[0])] == [9999, 10000, 10001]
    assert upgraded.rollback().plan.operation == "rollback"
    assert [one.undone_by for one in history.read(open_volume(upgraded.path)[0])] == [0, 0, 10002, 0]


def test_a_full_disk_is_no_damaged_record(upgraded: Jail, tmp_path: Path) -> None:
    """Of many changes a file tells, in TMPDIR: the record must not be moved away when that has no room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)], check=True)
    code = (
        "import sys; from pathlib import Path; from cellblock.events import Events\n"
        "from cellblock.jail import rollback\n"
        "from cellblock.jail.tree import spooled_map\n"
        "spooled_map.KEPT, spooled_map._CACHE_KIB = 2, 4\n"
        "rollback.rollback(Path(sys.argv[1]), Events())"
    )
    try:  # SQLite reads TMPDIR once
        command = [sys.executable, "-c", code, str(upgraded.path)]
        env = {**os.environ, "TMPDIR": str(disk)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert f"cannot be written to {disk}" in done.stderr
    assert " is damaged" not in done.stderr
    assert upgraded.rollback().changed


def test_another_trees_upgrade_is_not_undone(upgraded: Jail, small: Path) -> None:
    shutil.rmtree(upgraded.root)
    assemble(str(small), upgraded.path, upgraded.events)
    with pytest.raises(CellblockError, match="was filled anew since its last upgrade"):
        upgraded.rollback()
    assert not (upgraded.root / "usr").exists()
    assert [one.undone_by for one in history.read(open_volume(upgraded.path)[0])] == [0]


def test_a_root_that_is_a_link_is_none(upgraded: Jail) -> None:
    upgraded.root.rename(upgraded.path / "elsewhere")
    upgraded.root.symlink_to("elsewhere")
    for command in COMMANDS.values():
        with pytest.raises(CellblockError, match="root is no directory"):
            command(upgraded)


def test_a_directory_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(CellblockError, match="is a directory, and no plan"):
        change_plan.read(tmp_path)


def test_a_repository_is_not_kept_in_what_it_stores(upgraded: Jail) -> None:
    for place in (upgraded.root / "home/backup", upgraded.path / ".cellblock/backup"):
        repository = Repository(str(place), {"RESTIC_REPOSITORY": str(place), "RESTIC_PASSWORD": "x"})
        with pytest.raises(CellblockError, match="lies inside the jail"):
            backup(upgraded.path, repository, upgraded.events, BackupOptions(init=True))
        assert not place.exists()


def test_an_export_overwrites_nothing_and_leaves_no_part(upgraded: Jail, tmp_path: Path) -> None:
    taken = tmp_path / "taken.tar"
    taken.write_text("mine")
    with pytest.raises(CellblockError, match=r"taken\.tar exists; nothing was written"):
        changes.export(upgraded.path, taken)
    assert taken.read_text() == "mine"
    upgraded.write("home/large", "x" * 4_000_000)
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:
        with pytest.raises(OSError, match="No space left") as caught:
            changes.export(upgraded.path, disk / "users.tar")
        assert caught.value.filename == str(disk / "users.tar")
        assert not (disk / "users.tar").exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)
