# SPDX-License-Identifier: Apache-2.0
"""`jail rollback --to N`: which state to go back to, past repairs and several upgrades."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter

import pytest
from typer.testing import CliRunner
from upgraded_jail import BAR, FOO, FOO2, LIB, LIB2, Deb, Jail

from cellblock.cli.app import app
from cellblock.errors import CellblockError
from cellblock.jail.apply.kept_files import KeptFiles
from cellblock.jail.rollback import rollback_to
from cellblock.jail.tree.file_handle import FileHandle
from cellblock.jail.verify import verify
from cellblock.jail.volume import history
from cellblock.jail.volume.volume import Volume

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")

FOO3 = Deb("foo", "3")


@pytest.fixture
def upgraded(jail: Jail) -> Jail:
    """Upgrades 1 and 2, and repair 3 of a file of the second."""
    jail.assemble(FOO, BAR)
    jail.image("new", FOO2, LIB)
    jail.image("newer", FOO3, LIB2)
    jail.upgrade()
    jail.upgrade("newer")
    jail.write("usr/share/foo/data", "damaged")
    assert verify(jail.path, jail.events, repair=True).repaired == 3
    jail.write("home/ada", "a user's")
    return jail


def undone(jail: Jail) -> dict[int, int]:
    return {one.number: one.undone_by for one in history.read(Volume(jail.path))}


def test_a_repair_does_not_hide_the_upgrade_below_it(upgraded: Jail) -> None:
    said = CliRunner().invoke(app, ["jail", "rollback", str(upgraded.path), "--to", "1", "--log", "plain"])
    assert said.exit_code == 0, said.output
    assert upgraded.tree.versions() == {"foo": "2", "lib": "1"}
    assert upgraded.read("usr/share/foo/data") == "2" * 100
    assert upgraded.read("home/ada") == "a user's"
    assert verify(upgraded.path, upgraded.events, content=True).is_clean
    assert undone(upgraded) == {1: 0, 2: 4, 3: 4, 4: 0}
    upgraded.rollback()
    assert upgraded.tree.versions() == {"foo": "1", "bar": "1"}
    assert undone(upgraded) == {1: 5, 2: 4, 3: 4, 4: 0, 5: 0}


def test_all_of_them_can_be_undone_at_once(upgraded: Jail) -> None:
    command = ["jail", "rollback", str(upgraded.path), "--to", "0", "--log", "plain", "--json"]
    said = CliRunner().invoke(app, command)
    assert [one["number"] for one in json.loads(said.stdout)["undone"]] == [4, 5]
    assert upgraded.tree.versions() == {"foo": "1", "bar": "1"}
    assert verify(upgraded.path, upgraded.events, content=True).is_clean
    with pytest.raises(CellblockError, match="has had no upgrade since number 0; nothing was changed"):
        rollback_to(upgraded.path, 0, upgraded.events)


def test_without_a_number_the_repair_is_undone_and_it_is_said_how_to_go_on(upgraded: Jail) -> None:
    said = CliRunner().invoke(app, ["jail", "rollback", str(upgraded.path), "--log", "plain"])
    assert upgraded.read("usr/share/foo/data") == "damaged"
    assert f"`python3 build.py jail rollback {upgraded.path} --to 1` undoes that" in said.output
    rollback_to(upgraded.path, 1, upgraded.events)
    assert upgraded.tree.versions() == {"foo": "2", "lib": "1"}


def test_what_no_rollback_leads_to_is_refused(upgraded: Jail) -> None:
    rollback_to(upgraded.path, 0, upgraded.events)
    upgraded.upgrade("newer")
    words = "1, an upgrade, was undone by 5, so no rollback leads to what .* was after 1"
    with pytest.raises(CellblockError, match=words):
        rollback_to(upgraded.path, 1, upgraded.events)
    with pytest.raises(CellblockError, match="has no number 7 in its history"):
        rollback_to(upgraded.path, 7, upgraded.events)
    for _ in range(2):  # five are kept
        upgraded.rollback()
        upgraded.upgrade("newer")
    with pytest.raises(CellblockError, match="begins with number 6: what was before 6 can be had") as caught:
        rollback_to(upgraded.path, 4, upgraded.events)
    assert f"jail rollback {upgraded.path} --to 5" in caught.value.hint
    rollback_to(upgraded.path, 9, upgraded.events)
    assert upgraded.tree.versions() == {"foo": "1", "bar": "1"}


def test_a_damaged_record_on_the_way_is_named(upgraded: Jail) -> None:
    folder = Volume(upgraded.path).private / "history/0002"
    shutil.rmtree(folder / "old")
    with pytest.raises(CellblockError, match=r"history/0002, the record of an upgrade, is damaged"):
        rollback_to(upgraded.path, 1, upgraded.events)
    assert upgraded.tree.versions() == {"foo": "3", "lib": "2"}


def test_all_that_is_kept_can_be_undone(jail: Jail) -> None:
    """A rollback is in the history, too: it took the place of what the next one was to undo."""
    jail.assemble(Deb("foo", "0"))
    for number in range(1, history.KEEP + 2):
        jail.image(f"image{number}", Deb("foo", str(number)))
        jail.upgrade(f"image{number}")
    with pytest.raises(CellblockError, match="begins with number 2: what was before 2 can be had"):
        rollback_to(jail.path, 0, jail.events)
    assert len(rollback_to(jail.path, 1, jail.events)) == history.KEEP
    assert jail.tree.versions() == {"foo": "1"}
    assert len(history.read(Volume(jail.path))) == history.KEEP
    jail.tree.check()


def test_each_kept_file_is_looked_at_once(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checked is then what is linked. Upgrades of many files are the slower for each look more."""
    jail.assemble(FOO, BAR)
    jail.image("new", FOO2, LIB)
    jail.upgrade()
    looks: Counter[int] = Counter()
    look = KeptFiles._at

    def counted(self: KeptFiles, number: int) -> FileHandle | None:
        looks[number] += 1
        return look(self, number)

    monkeypatch.setattr(KeptFiles, "_at", counted)
    jail.rollback()
    assert jail.tree.versions() == {"foo": "1", "bar": "1"}
    assert len(looks) > 5
    assert set(looks.values()) == {1}
