# SPDX-License-Identifier: Apache-2.0
"""Tests backup and restore by real restic while users exchange files.

apply/test_exchanged_files.py does the same for upgrades.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from exchanging import EVIL, Moments, Outside, copy, ending_well, make_evil, prepared, some_moments
from upgraded_jail import Jail

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.backup.backup import BackupOptions, backup
from cellblock.jail.backup.one_path import restore_path
from cellblock.jail.backup.repository import Repository, find_repository
from cellblock.jail.backup.restore import RestoreOptions, restore

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root"),
    pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed"),
]

# Moments of each command and target; 0: all of them.
SAMPLES = int(os.environ.get("CELLBLOCK_EXCHANGES", "1"))
TARGETS = ("home/ada/work", "home/ada", "home", "usr/share/foo/data", "etc")
EVENTS = Events()
# Seconds for one command: restic takes one or two.
_LIMIT_S = 120


def _backup(volume: Path, repository: Repository) -> None:
    backup(volume, repository, EVENTS, BackupOptions(name="jail"))


def _restore(volume: Path, repository: Repository) -> None:
    restore(volume, repository, EVENTS, RestoreOptions(name="jail", replace=True, content=False))


def _restore_path(volume: Path, repository: Repository) -> None:
    options = RestoreOptions(name="jail", replace=True, content=False)
    # Its place may be users' link by then, which is refused: the tree is as it was.
    with suppress(CellblockError):
        restore_path(volume, repository, EVENTS, options, "/home/ada")


COMMANDS: dict[str, Callable[[Path, Repository], None]] = {
    "backup": _backup,
    "restore": _restore,
    "restore-path": _restore_path,
}


@dataclass(frozen=True)
class Stored:
    """A jail, and a repository with a snapshot of it."""

    jail: Jail
    repository: Path
    # Calls of each command that are moments.
    calls: dict[str, int]

    def copies(self, folder: Path) -> tuple[Path, Repository]:
        """A volume and a repository for one try."""
        shutil.copytree(self.repository, folder / "repository")
        return copy(self.jail, folder / "volume"), find_repository(str(folder / "repository"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RESTIC_PASSWORD", "of the tests")
        jail = prepared(tmp_path_factory.mktemp("jail"))
        repository = find_repository(str(folder / "repository"))
        backup(jail.path, repository, EVENTS, BackupOptions(name="jail", init=True))
        found = Stored(jail, folder / "repository", {})
        for name, command in COMMANDS.items():
            place = folder / name
            place.mkdir()
            volume, copied = found.copies(place)
            count = Moments(place, place, -5, back=False)
            with count.counting():
                command(volume, copied)
            found.calls[name] = count.count
    return found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RESTIC_PASSWORD", "of the tests")
    # The copies of one repository pass for one to restic.
    monkeypatch.setenv("RESTIC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_exchanged_at_any_moment(
    name: str, target: str, stored: Stored, tmp_path: Path
) -> None:
    seed = list(COMMANDS).index(name) * len(TARGETS) + TARGETS.index(target)
    for number, moment in enumerate(some_moments(stored.calls[name], SAMPLES, seed)):
        for back in (False, True):
            evil = EVIL[(seed + number + back * 4) % len(EVIL)]
            folder = tmp_path / f"{moment}-{back}"
            folder.mkdir()
            _one(COMMANDS[name], stored, (target, evil, moment, back), folder)
            shutil.rmtree(folder)


def _one(
    command: Callable[[Path, Repository], None],
    stored: Stored,
    what: tuple[str, str, int, bool],
    folder: Path,
) -> None:
    target, evil, moment, back = what
    outside = Outside(folder / "outside")
    volume, repository = stored.copies(folder)
    root = volume / "root"
    (root / "srv/evil").mkdir(parents=True)
    make_evil(evil, root / "srv/evil/one", outside, root)
    exchanging = Moments(root / target, root / "srv/evil/one", moment, back=back)
    with ending_well(str(what), _LIMIT_S), exchanging.counting():
        command(volume, repository)
    # subprocess opens that one itself.
    assert [path for path in exchanging.opened if path != os.devnull] == [], what
    outside.check(volume)
