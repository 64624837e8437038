# SPDX-License-Identifier: Apache-2.0
"""Users exchange a file between a look of the volume tools and what they then do: at each moment, in turn.

Whatever they put there, no file of the host is read, changed or waited for, and the command ends well. CI
tries a few moments of each; CELLBLOCK_EXCHANGES=0 in the environment tries all, another number that many.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from exchanging import EVIL, Moments, Outside, copy, ending_well, make_evil, prepared, some_moments
from upgraded_jail import Jail

from cellblock.events import Events
from cellblock.jail.backup import listing
from cellblock.jail.changes import changes, export
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import MovedTreeError, plan_upgrade, upgrade
from cellblock.jail.verify import verify

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")

SAMPLES = int(os.environ.get("CELLBLOCK_EXCHANGES", "2"))
EVENTS = Events()
TARGETS = (
    *(
        "usr/share/foo/data",
        "usr/share/foo/only-1",
        "usr/share/foo/mode",
        "usr/lib/libfoo.so",
        "etc/foo.conf",
    ),
    *(
        "etc/kind",
        "etc/passwd",
        "var/lib/dpkg/status",
        "var/lib/dpkg/info/foo.list",
        "usr/share/foo",
        "usr/bin",
    ),
    *("var/lib/dpkg", "var/lib/dpkg/info", "etc"),
)
Command = Callable[[Path, Path], None]


def _upgrade(volume: Path, images: Path) -> None:
    upgrade(str(images / "new"), volume, EVENTS)


def _apply(volume: Path, images: Path) -> None:
    plan = plan_upgrade(str(images / "new"), volume)
    try:
        upgrade(str(images / "new"), volume, EVENTS, expected=plan)
    except MovedTreeError:
        _upgrade(volume, images)


def _rollback(volume: Path, images: Path) -> None:
    rollback(volume, EVENTS)


def _verify(volume: Path, images: Path) -> None:
    verify(volume, EVENTS, content=True)


def _repair(volume: Path, images: Path) -> None:
    verify(volume, EVENTS, content=True, repair=True)


def _diff(volume: Path, images: Path) -> None:
    list(changes(volume))


def _export(volume: Path, images: Path) -> None:
    export(volume, volume.parent / f"{volume.name}.tar")


def _list(volume: Path, images: Path) -> None:
    listing.write(volume.parent / f"{volume.name}.list", listing.read_tree(os.fsencode(volume / "root")))


COMMANDS: dict[str, Command] = {
    "upgrade": _upgrade,
    "apply": _apply,
    "rollback": _rollback,
    "verify": _verify,
    "repair": _repair,
    "diff": _diff,
    "export": _export,
    "list": _list,
}


@pytest.fixture(scope="module")
def jails(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Jail]:
    """By the state that a command needs: assembled, upgraded, or damaged."""
    found = {}
    for state in ("assembled", "upgraded", "damaged"):
        jail = prepared(tmp_path_factory.mktemp(state))
        if state == "upgraded":
            jail.upgrade()
        if state == "damaged":
            for name in ("usr/share/foo/data", "usr/lib/libfoo.so"):
                jail.write(name, "damaged")
            (jail.root / "usr/share/foo/only-1").unlink()
            (jail.root / "usr/share/foo/mode").chmod(0o600)
        found[state] = jail
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_exchanged_at_any_moment(
    name: str, target: str, jails: dict[str, Jail], tmp_path: Path
) -> None:
    state = {"rollback": "upgraded", "repair": "damaged", "export": "damaged"}.get(name, "assembled")
    jail = jails[state]
    folder = jail.path.parent
    count = Moments(tmp_path, tmp_path, -5, back=False)
    with count.counting():
        COMMANDS[name](copy(jail, tmp_path / "first"), folder)
    seed = list(COMMANDS).index(name) * len(TARGETS) + TARGETS.index(target)
    for number, moment in enumerate(some_moments(count.count, SAMPLES, seed)):
        for back in (False, True):
            evil = EVIL[(seed + moment + number) % len(EVIL)]
            _one(
                f"{name} {target} {evil} {moment} {back}", jail, (name, target, evil, moment, back), tmp_path
            )


def _one(case: str, jail: Jail, what: tuple[str, str, str, int, bool], tmp_path: Path) -> None:
    name, target, evil, moment, back = what
    folder = tmp_path / case.replace("/", "-").replace(" ", "-")
    folder.mkdir()
    outside = Outside(folder / "outside")
    volume = copy(jail, folder / "volume")
    root = volume / "root"
    if not os.path.lexists(root / target):
        return  # the command's state has none
    (root / "home/evil").mkdir()
    make_evil(evil, root / "home/evil/one", outside, root)
    exchanging = Moments(root / target, root / "home/evil/one", moment, back=back)
    with ending_well(case, limit_s=60):
        with exchanging.counting():
            COMMANDS[name](volume, jail.path.parent)
        if name in ("upgrade", "apply", "repair") and (volume / ".cellblock/history").exists():
            # What lies in kept/ by now is what a rollback trusts: with the file as it was, too.
            _give_image(root / target, jail.path.parent / "new" / target)
            rollback(volume, EVENTS)
    assert exchanging.opened == [], case
    outside.check(volume)


def _give_image(path: Path, image: Path) -> None:
    """The image's content, as a user would copy it there who gives up."""
    if image.is_file() and not path.is_dir() and path.parent.is_dir():
        path.unlink(missing_ok=True)
        path.write_bytes(image.read_bytes())
