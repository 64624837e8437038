# SPDX-License-Identifier: Apache-2.0
"""A writer that another took over says so, and not what it stumbled over: its folder is gone by then."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from stopped_writer import stopped_writer, wake
from upgraded_jail import BAR, FOO, FOO2, LIB, Jail

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import assemble
from cellblock.jail.backup.backup import BackupOptions, backup
from cellblock.jail.backup.repository import find_repository
from cellblock.jail.backup.restore import RestoreOptions, restore
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import upgrade
from cellblock.jail.verify import verify
from cellblock.jail.volume import history
from cellblock.jail.volume.volume import Volume
from cellblock.jail.volume.writer_lock import LostLockError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")


@pytest.fixture
def prepared(jail: Jail, short_lease: None) -> Jail:
    """A volume with something to upgrade to, to undo, to repair and to restore."""
    jail.assemble(FOO, BAR)
    jail.image("new", FOO2, LIB)
    return jail


def taken_over(jail: Jail, command: str, step: str, source: str, other: Callable[[], object]) -> str:
    """What the `command` says that was stopped at its `step` while the `other` one ran."""
    with stopped_writer(command, step, jail.path, source) as writer:
        other()
        return wake(writer)


def says_so(told: str) -> None:
    assert "it was taken over by another writer, which has finished" in told
    assert "run the same command again: it finishes what is left" in told
    assert "No such file" not in told


@pytest.mark.parametrize("step", ["set directories' owners and times", "flush to disk"])
def test_an_assembly(prepared: Jail, step: str) -> None:
    shutil.rmtree(prepared.path)
    source = str(prepared.folder / "old")
    says_so(
        taken_over(
            prepared, "assemble", step, source, lambda: assemble(source, prepared.path, prepared.events)
        )
    )
    assert verify(prepared.path, prepared.events, content=True).is_clean


@pytest.mark.parametrize("step", ["read the source", "make the new files", "replace files"])
def test_an_upgrade(prepared: Jail, step: str) -> None:
    source = str(prepared.folder / "new")
    says_so(
        taken_over(prepared, "upgrade", step, source, lambda: upgrade(source, prepared.path, prepared.events))
    )
    assert prepared.tree.versions() == {"foo": "2", "lib": "1"}
    assert len(history.read(Volume(prepared.path))) == 1
    assert verify(prepared.path, prepared.events, content=True).is_clean


@pytest.mark.parametrize("step", ["make the new files", "replace files"])
def test_a_rollback(prepared: Jail, step: str) -> None:
    prepared.upgrade()
    says_so(taken_over(prepared, "rollback", step, "", lambda: rollback(prepared.path, prepared.events)))
    assert prepared.tree.versions() == {"foo": "1", "bar": "1"}
    assert verify(prepared.path, prepared.events, content=True).is_clean


def test_a_repair(prepared: Jail) -> None:
    prepared.write("usr/share/foo/data", "damaged")

    def other() -> None:
        assert verify(prepared.path, prepared.events, repair=True).is_clean

    says_so(taken_over(prepared, "repair", "replace files", "", other))
    assert verify(prepared.path, prepared.events, content=True).is_clean


@pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed: apt-get install restic")
@pytest.mark.parametrize("step", ["restore the tree", "compare with the snapshot"])
def test_a_restore(prepared: Jail, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESTIC_PASSWORD", "of the tests")
    monkeypatch.setenv("RESTIC_CACHE_DIR", str(prepared.folder / "cache"))
    location = str(prepared.folder / "repository")
    repository = find_repository(location)
    backup(prepared.path, repository, Events(), BackupOptions(init=True))

    def other() -> None:
        restore(prepared.path, repository, Events(), RestoreOptions(replace=True))

    says_so(taken_over(prepared, "restore", step, location, other))
    assert verify(prepared.path, prepared.events, content=True).is_clean


def test_a_writer_whose_record_was_removed_says_that(tmp_path: Path) -> None:
    """By a person who took it for dead: it works on, and falls over what the next one removes."""
    target = Volume(tmp_path / "volume")
    target.prepare()

    def work() -> None:
        with target.lock("test"):
            (target.private / "writer").unlink()
            (target.private / "staging-gone/new").touch()

    with pytest.raises(LostLockError, match=r"or somebody removed .*/writer") as caught:
        work()
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_an_error_of_a_writer_that_holds_the_volume_stays_what_it_is(tmp_path: Path) -> None:
    target = Volume(tmp_path / "volume")
    target.prepare()
    with pytest.raises(CellblockError, match="of its own"), target.lock("test"):
        raise CellblockError("of its own", hint="none")
