# SPDX-License-Identifier: Apache-2.0
"""An upgrade or rollback that is killed, or runs out of space, at any moment is finished by the same command.

CI tries a few moments; CELLBLOCK_CRASHES=200 CELLBLOCK_FULL_DISKS=20 in the environment tries that many, and
another CELLBLOCK_SEED others. The images are layouts of two layers: the volume keeps what they say.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deb_trees import Deb, DebTree
from jail_trees import snapshot

from cellblock.bench.inputs.volume_sources import TAR, Layout
from cellblock.events import Events
from cellblock.jail.assemble import assemble
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import upgrade
from cellblock.jail.verify import verify
from cellblock.jail.volume.volume import Volume
from tests.memory_disk import memory_disk

pytestmark = [
    pytest.mark.integration,  # not for what they need but because they take a minute
    pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root"),
]

CRASHES = int(os.environ.get("CELLBLOCK_CRASHES", "6"))
FULL_DISKS = int(os.environ.get("CELLBLOCK_FULL_DISKS", "3"))
SEED = int(os.environ.get("CELLBLOCK_SEED", "0"))

# Runs a command of this jail and dies, or finds the disk full, at the Nth call that changes a filesystem.
CHILD = """
import errno, os, signal, sys
from pathlib import Path
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail import rollback, upgrade
from cellblock.jail.apply import step
what, volume, source, moment, fault = sys.argv[1:6]
count = 0
def counted(function):
    def call(*arguments, **options):
        global count
        count += 1
        if count == int(moment):
            if fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(errno.ENOSPC, "No space left on device")
        return function(*arguments, **options)
    return call
for name in ("rename", "replace", "link", "unlink", "mkdir", "rmdir", "symlink", "chown", "chmod", "utime"):
    setattr(os, name, counted(getattr(os, name)))
step.exchange, step.move = counted(step.exchange), counted(step.move)
os.open = counted(os.open)
run = upgrade.upgrade if what == "upgrade" else rollback.rollback
try:
    run(*([source] if what == "upgrade" else []), Path(volume), Events())
except CellblockError as error:
    sys.exit(str(error))
print(count)
"""


def child(
    what: str, volume: Path, source: str, moment: int, fault: str = "kill"
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CHILD, what, str(volume), str(source), str(moment), fault]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@dataclass(frozen=True)
class Case:
    """A volume to copy, with users' work in it, and what it is after an upgrade."""

    volume: Path
    new: str
    before: dict[bytes, object]
    after: dict[bytes, object]
    users: tuple[str, ...]


USERS = ("home/ada/work", "usr/local/bin/tool", "etc/foo.conf", "usr/share/foo/own", "opt/conda/x")


def seen(root: Path) -> dict[bytes, object]:
    """A tree without the times of directories."""
    return {
        path: (*found[:3], *found[4:]) if str(found[0]).startswith("0o4") else found
        for path, found in snapshot(root).items()
    }


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("crashes")
    debs = folder / "debs"
    debs.mkdir()

    def many(version: str) -> dict[str, str]:
        return {f"usr/lib/foo/{number}": f"{version} {number}" for number in range(int(version) * 15)}

    foo, foo2 = Deb("foo", "2", many("2")), Deb("foo", "3", many("3"))
    old = DebTree.make(folder / "old", debs, foo, Deb("bar", "1"), Deb("lib", "1"))
    new = DebTree.make(folder / "new", debs, foo2, Deb("app", "1"), Deb("lib", "1"))
    (old.root / "etc/kind").mkdir()
    (new.root / "etc/kind").symlink_to("foo.conf")
    (old.root / "etc/other").symlink_to("foo.conf")
    (new.root / "etc/other").mkdir()
    (new.root / "etc/other/f").touch()
    layout, volume = Layout(folder / "layout"), folder / "volume"
    layout.add("old", *packed(folder, "old"))
    layout.add("new", *packed(folder, "new"))
    assemble(f"oci:{layout.folder}:old", volume, Events())
    tree = DebTree(volume / "root", debs)
    for name in USERS:
        (tree.root / name).parent.mkdir(parents=True, exist_ok=True)
        (tree.root / name).write_text(f"the users' {name}")
    tree.install(Deb("mine", "1", fields={"Depends": "bar"}))
    before = seen(tree.root)
    done = copy(volume, folder / "done")
    source = f"oci:{layout.folder}:new"
    upgrade(source, done, Events())
    assert (done / "root/etc/kind").is_symlink()
    assert (done / "root/etc/other/f").is_file()
    return Case(volume, source, before, seen(done / "root"), USERS)


def packed(folder: Path, name: str) -> tuple[Path, Path]:
    """The tree `name` as two layers: all but the programs, which are the same in many images, and these."""
    found = (folder / f"{name}-1.tar", folder / f"{name}-2.tar")
    for archive, what in zip(found, (["--exclude=./usr/bin", "."], ["./usr/bin"]), strict=True):
        subprocess.run([*TAR, "-C", str(folder / name), "-cf", str(archive), *what], check=True)
    return found


def copy(volume: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", str(volume), str(target)], check=True)
    return target


def moments(chance: random.Random, total: int, number: int) -> list[int]:
    """Spread over the whole run: as many of each part of it."""
    return [int((part + chance.random()) * total / number) + 1 for part in range(number)]


def users_work_is_there(volume: Path, case: Case) -> None:
    for name in case.users:
        assert (volume / "root" / name).read_text() == f"the users' {name}"
    assert (volume / "root/usr/bin/foo").exists(), "a program of both images is there at every moment"


def nothing_is_left(volume: Path) -> None:
    # A name that was cut off while it was written stays for an hour: it could be another host's.
    names = {path.name for path in (volume / ".cellblock").iterdir() if path.stat().st_size}
    names |= {"lock"}
    assert names == {"manifest", "controls", "state.json", "history", "lock", "layers"}
    layers = (volume / ".cellblock/layers").iterdir()
    assert not [path for path in layers if path.suffix == ".new"]
    found = verify(volume, Events())
    assert found.is_clean, found.damaged


def test_killed_at_any_moment_an_upgrade_and_its_rollback_finish(case: Case, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    totals = []
    copy(case.volume, volume)
    for what in ("upgrade", "rollback"):
        totals.append(int(child(what, volume, case.new, 0).stdout))
    chance = random.Random(SEED + 11)
    for moment in moments(chance, totals[0], CRASHES):
        copy(case.volume, volume)
        assert child("upgrade", volume, case.new, moment).returncode == -9, moment
        users_work_is_there(volume, case)
        done = child("upgrade", volume, case.new, 0)
        assert done.returncode == 0, (moment, done.stderr)
        assert seen(volume / "root") == case.after, moment
        nothing_is_left(volume)
        back = moments(chance, totals[1], 1)[0]
        assert child("rollback", volume, case.new, back).returncode == -9
        users_work_is_there(volume, case)
        done = child("rollback", volume, case.new, 0)
        if Volume(volume).state() != Volume(case.volume).state():
            raise AssertionError((back, done.stderr))
        assert seen(volume / "root") == case.before, back
        nothing_is_left(volume)


def test_killed_twice_it_still_finishes(case: Case, tmp_path: Path) -> None:
    volume = copy(case.volume, tmp_path / "volume")
    total = int(child("upgrade", volume, case.new, 0).stdout)
    chance = random.Random(SEED + 5)
    for _ in range(max(2, CRASHES // 10)):
        copy(case.volume, volume)
        for _ in range(3):
            child("upgrade", volume, case.new, int(chance.uniform(0.5, 1) * total))
        assert child("upgrade", volume, case.new, 0).returncode == 0
        assert seen(volume / "root") == case.after
        nothing_is_left(volume)


def test_where_the_filesystem_cannot_swap_names(case: Case, tmp_path: Path) -> None:
    """As on NFS: replaced by rename(2) alone."""
    volume = copy(case.volume, tmp_path / "volume")
    without = CHILD.replace(
        "step.exchange, step.move = counted(step.exchange), counted(step.move)",
        "from cellblock.jail.tree import rename_exchange; rename_exchange._rename = lambda *a: False",
    )
    assert without != CHILD

    def run(moment: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", without, "upgrade", str(volume), case.new, str(moment), "kill"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    total = int(run(0).stdout)
    assert seen(volume / "root") == case.after
    for moment in moments(random.Random(SEED + 3), total, max(3, CRASHES // 4)):
        copy(case.volume, volume)
        assert run(moment).returncode == -9
        users_work_is_there(volume, case)
        assert run(0).returncode == 0
        assert seen(volume / "root") == case.after, moment
        nothing_is_left(volume)


@pytest.fixture
def small_disk(case: Case, tmp_path: Path) -> Iterator[Path]:
    with memory_disk(tmp_path / "disk", "size=8m,nr_inodes=3000,mode=755") as folder:
        yield folder


def test_a_full_disk_at_any_moment_loses_nothing(case: Case, small_disk: Path) -> None:
    volume, filler = small_disk / "volume", small_disk / "filler"
    copy(case.volume, volume)
    free = os.statvfs(small_disk).f_bavail
    upgrade(case.new, volume, Events())
    needed = free - os.statvfs(small_disk).f_bavail + 100
    refused = 0
    for part in moments(random.Random(SEED + 2), needed, FULL_DISKS):
        copy(case.volume, volume)
        status = os.statvfs(small_disk)
        filler.write_bytes(bytes((status.f_bavail - part) * status.f_frsize))
        done = child("upgrade", volume, case.new, 0)
        filler.unlink()
        users_work_is_there(volume, case)
        if done.returncode:
            refused += 1
            assert "is full; the tree was not changed" in done.stderr, done.stderr
            assert seen(volume / "root") == case.before
        upgrade(case.new, volume, Events())
        assert seen(volume / "root") == case.after
        nothing_is_left(volume)
    assert refused, "the disk was never full"


@pytest.mark.parametrize("what", ["upgrade", "rollback"])
def test_full_while_names_are_changed_it_goes_on_later(what: str, case: Case, tmp_path: Path) -> None:
    whole = case.volume if what == "upgrade" else upgraded(case, tmp_path / "whole")
    volume = copy(whole, tmp_path / "volume")
    total = int(child(what, volume, case.new, 0).stdout)
    expected = case.after if what == "upgrade" else case.before
    for moment in moments(random.Random(SEED + 4), total, FULL_DISKS * (2 if what == "upgrade" else 1)):
        copy(whole, volume)
        done = child(what, volume, case.new, moment, "full")
        assert done.returncode in (0, 1), done.stderr
        users_work_is_there(volume, case)
        if done.returncode:
            assert child(what, volume, case.new, 0).returncode == 0
        assert seen(volume / "root") == expected, (moment, done.stderr)
        nothing_is_left(volume)


def upgraded(case: Case, target: Path) -> Path:
    copy(case.volume, target)
    upgrade(case.new, target, Events())
    return target


def test_a_full_disk_at_any_moment_of_a_rollback_loses_nothing(
    case: Case, small_disk: Path, tmp_path: Path
) -> None:
    """A rollback takes little, for what it brings back is there: the last pages of a disk are what counts."""
    whole = upgraded(case, tmp_path / "whole")
    volume, filler = small_disk / "volume", small_disk / "filler"
    copy(whole, volume)
    free = os.statvfs(small_disk).f_bavail
    rollback(volume, Events())
    needed = max(2, free - os.statvfs(small_disk).f_bavail) + 4
    refused = 0
    for left in moments(random.Random(SEED + 7), needed, FULL_DISKS):
        copy(whole, volume)
        status = os.statvfs(small_disk)
        filler.write_bytes(bytes((status.f_bavail - left + 1) * status.f_frsize))
        done = child("rollback", volume, case.new, 0)
        filler.unlink()
        users_work_is_there(volume, case)
        if done.returncode:
            refused += 1
            assert "is full" in done.stderr, (left, done.stderr)
            if "the tree was not changed" in done.stderr:
                assert seen(volume / "root") == case.after, left
            rollback(volume, Events())
        assert seen(volume / "root") == case.before, (left, done.stderr)
        nothing_is_left(volume)
    assert refused, "the disk was never full"


def test_users_may_work_while_it_is_interrupted(case: Case, tmp_path: Path) -> None:
    volume = copy(case.volume, tmp_path / "volume")
    total = int(child("upgrade", volume, case.new, 0).stdout)
    kept = 0
    for moment in moments(random.Random(SEED + 6), total, CRASHES):
        copy(case.volume, volume)
        child("upgrade", volume, case.new, moment)
        paths = [volume / "root/usr/lib/foo" / str(number) for number in (3, 20, 44)]
        for path in paths:
            path.write_text("edited in between")
        (volume / "root/usr/bin/app").write_text("theirs")
        assert child("upgrade", volume, case.new, 0).returncode == 0
        for path in paths:
            assert path.read_text() == "edited in between", (moment, path)
        assert (volume / "root/usr/bin/app").read_text() == "theirs", moment
        kept += 1
    assert kept == CRASHES
    rollback(volume, Events())
