# SPDX-License-Identifier: Apache-2.0
"""A power cut at any moment costs neither users' files nor the way back, of an upgrade or an adoption either.

The filesystem of a loop device is shut down (ioctl FS_IOC_SHUTDOWN): what it had not written is gone. Every
second cut lets it finish its journal first, so that names and sizes are on the disk, and the data is not.

CI tries some moments; CELLBLOCK_POWER_CUTS=100 in the environment tries that many of each, and another
CELLBLOCK_SEED others.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from deb_trees import Deb, DebTree
from test_upgrade_crashes import USERS, seen

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.adopt import adopt
from cellblock.jail.assemble import assemble
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import upgrade
from cellblock.jail.verify import verify
from cellblock.jail.volume import history
from cellblock.jail.volume.volume import Volume

pytestmark = [
    pytest.mark.integration,  # not for what they need but because they take a minute
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts filesystems: needs root"),
]

CUTS = int(os.environ.get("CELLBLOCK_POWER_CUTS", "4"))
SEED = int(os.environ.get("CELLBLOCK_SEED", "0"))
EVENTS = Events()
SIZE = 320 << 20
"""Of a filesystem; xfs takes no less than 300 MB."""
FILES = 1500

# Runs a command and cuts the power at the Nth call that changes a filesystem, after so many seconds (of an
# assembly, which is not done in Python), or, if neither comes, in the moment after its end.
CHILD = """
import fcntl, os, signal, struct, sys, threading, time
from pathlib import Path
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail import rollback, upgrade
from cellblock.jail.adopt import adopt
from cellblock.jail.apply import step
from cellblock.jail.assemble import assemble
what, volume, source, moment, flags = sys.argv[1:6]
count = 0
mount = os.open(Path(volume).parent, os.O_RDONLY)
def cut():
    fcntl.ioctl(mount, 0x8004587D, struct.pack("I", int(flags)))  # FS_IOC_SHUTDOWN
    os.kill(os.getpid(), signal.SIGKILL)
def counted(function):
    def call(*arguments, **options):
        global count
        count += 1
        if what != "assemble" and count == float(moment):
            cut()
        return function(*arguments, **options)
    return call
names = ("rename", "replace", "link", "unlink", "mkdir", "rmdir", "symlink", "chown", "chmod", "utime")
for name in (*names, "fsync"):
    setattr(os, name, counted(getattr(os, name)))
step.exchange, step.move = counted(step.exchange), counted(step.move)
os.open = counted(os.open)
commands = {
    "assemble": lambda: assemble(source, Path(volume), Events()),
    "adopt": lambda: adopt(Path(volume), Events()),
    "upgrade": lambda: upgrade.upgrade(source, Path(volume), Events()),
    "rollback": lambda: rollback.rollback(Path(volume), Events()),
}
started = time.monotonic()
if what == "assemble" and float(moment):
    threading.Thread(target=lambda: (time.sleep(float(moment)), cut()), daemon=True).start()
commands[what]()
print(count, time.monotonic() - started, flush=True)
cut()
"""
NOLOGFLUSH, LOGFLUSH = 2, 1


@dataclass(frozen=True)
class Disk:
    """A filesystem in a file, and what it is a copy of."""

    folder: Path
    kind: str

    def make(self) -> None:
        with (self.folder / self.kind).open("wb") as file:
            file.truncate(SIZE)
        run(f"mkfs.{self.kind}", "-q", str(self.folder / self.kind))

    @contextmanager
    def mounted(self, image: str) -> Iterator[Path]:
        place = self.folder / f"on-{self.kind}"
        place.mkdir(exist_ok=True)
        more = ["-o", "loop,nouuid"] if self.kind == "xfs" else ["-o", "loop"]
        run("mount", *more, str(self.folder / image), str(place))
        try:
            yield place
        finally:
            run("umount", str(place))

    def copy(self, source: str, target: str) -> None:
        run("cp", "--sparse=always", str(self.folder / source), str(self.folder / target))

    def cut(self, what: str, source: str, moment: float, flags: int) -> str:
        """Run `what` on a copy of the prepared disk, without power from that moment on; what it printed.

        What is on the disk then is in `cut`, a new file each time: another mount namespace may hold
        the filesystem that was shut down, and with it the loop device of its file.
        """
        self.copy(f"{what}.{self.kind}", "running")
        with self.mounted("running") as place:
            volume = place / "volume"
            command = [sys.executable, "-c", CHILD, what, str(volume), source, str(moment), str(flags)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            # Another thread may see the disk gone before its process is killed.
            assert done.returncode == -9 or "Input/output error" in done.stderr, done.stderr
        (self.folder / "cut").unlink(missing_ok=True)
        self.copy("running", "cut")
        (self.folder / "running").unlink()
        return done.stdout


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@dataclass(frozen=True)
class Prepared:
    """Disks before each command, and the trees before and after an upgrade."""

    disk: Disk
    old: str
    new: str
    before: dict[bytes, object]
    after: dict[bytes, object]


@pytest.fixture(scope="module", params=["ext4", "xfs"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp(request.param)
    disk = Disk(folder, request.param)
    try:
        disk.make()
        with disk.mounted(disk.kind):
            pass
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or error
        pytest.skip(f"no {disk.kind} on a loop device here, so no power was cut: {said}")
    debs = folder / "debs"
    debs.mkdir()
    old, new = (
        DebTree.make(folder / name, debs, Deb("foo", version, many(version)), Deb(*other))
        for name, version, other in (("old", "2", ("bar", "1")), ("new", "3", ("app", "1")))
    )
    trees = []
    disk.copy(disk.kind, f"assemble.{disk.kind}")
    with disk.mounted(disk.kind) as place:
        volume = place / "volume"
        assemble(str(old.root), volume, EVENTS)
        for name in USERS:
            path = volume / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"the users' {name}")
        trees.append(seen(volume / "root"))
        os.sync()
        disk.copy(disk.kind, f"upgrade.{disk.kind}")
        upgrade(str(new.root), volume, EVENTS)
        trees.append(seen(volume / "root"))
        os.sync()
        disk.copy(disk.kind, f"rollback.{disk.kind}")
    disk.copy(f"upgrade.{disk.kind}", f"adopt.{disk.kind}")
    with disk.mounted(f"adopt.{disk.kind}") as place:
        shutil.rmtree(place / "volume/.cellblock")
    return Prepared(disk, str(old.root), str(new.root), *trees)


def many(version: str) -> dict[str, str]:
    return {f"usr/lib/foo/{number}": f"{version} {number}\n" * 300 for number in range(FILES)}


def moments(chance: random.Random, total: float) -> list[float]:
    """Spread over the whole run, and the last one after its end."""
    return [(part + chance.random()) * total / (CUTS - 1) for part in range(CUTS - 1)] + [0.0]


def works(volume: Path) -> None:
    """What only looks says at most that an upgrade is to be finished."""
    assert not [one for one in history.listed(Volume(volume)) if isinstance(one, history.Damaged)]
    with suppress_interrupted():
        verify(volume, EVENTS, content=True)


@contextmanager
def suppress_interrupted() -> Iterator[None]:
    try:
        yield
    except CellblockError as error:
        if "was interrupted" not in error.message:
            raise


def users_work_is_there(volume: Path) -> None:
    for name in USERS:
        assert (volume / "root" / name).read_text() == f"the users' {name}"


@pytest.mark.parametrize("what", ["upgrade", "rollback"])
def test_an_upgrade_or_rollback(prepared: Prepared, what: str) -> None:
    chance, disk = random.Random(f"{SEED} {what}"), prepared.disk
    calls = int(disk.cut(what, prepared.new, 0, NOLOGFLUSH).split()[0])
    for number, moment in enumerate(moments(chance, calls)):
        flags = (NOLOGFLUSH, LOGFLUSH)[number % 2]
        disk.cut(what, prepared.new, int(moment), flags)
        with disk.mounted("cut") as place:
            volume = place / "volume"
            where = f"{what} on {disk.kind} cut at call {int(moment)} of {calls}, flags {flags}"
            users_work_is_there(volume)
            works(volume)
            if what == "upgrade":
                upgrade(prepared.new, volume, EVENTS)
            elif len(history.listed(Volume(volume))) == 1:
                rollback(volume, EVENTS)
            for tree in (prepared.after, prepared.before) if what == "upgrade" else (prepared.before,):
                assert seen(volume / "root") == tree, where
                assert verify(volume, EVENTS, content=True).is_clean, where
                if tree is prepared.after:
                    rollback(volume, EVENTS)
            upgrade(prepared.new, volume, EVENTS)
            assert seen(volume / "root") == prepared.after, where


def test_an_assembly(prepared: Prepared) -> None:
    chance, disk = random.Random(f"{SEED} assemble"), prepared.disk
    seconds = float(disk.cut("assemble", prepared.old, 0, NOLOGFLUSH).split()[1])
    for number, moment in enumerate(moments(chance, seconds)):
        flags = (NOLOGFLUSH, LOGFLUSH)[number % 2]
        disk.cut("assemble", prepared.old, moment, flags)
        with disk.mounted("cut") as place:
            volume = place / "volume"
            where = f"assembly on {disk.kind} cut after {moment:.3f} of {seconds:.3f} s, flags {flags}"
            assemble(prepared.old, volume, EVENTS)
            assert seen(volume / "root") == seen(Path(prepared.old)), where
            assert verify(volume, EVENTS, content=True).is_clean, where
            upgrade(prepared.new, volume, EVENTS)
            rollback(volume, EVENTS)
            assert verify(volume, EVENTS, content=True).is_clean, where


def test_an_adoption(prepared: Prepared) -> None:
    chance, disk = random.Random(f"{SEED} adopt"), prepared.disk
    calls = int(disk.cut("adopt", "", 0, NOLOGFLUSH).split()[0])
    for number, moment in enumerate(moments(chance, calls)):
        flags = (NOLOGFLUSH, LOGFLUSH)[number % 2]
        disk.cut("adopt", "", int(moment), flags)
        with disk.mounted("cut") as place:
            volume = place / "volume"
            where = f"adoption on {disk.kind} cut at call {int(moment)} of {calls}, flags {flags}"
            assert seen(volume / "root") == prepared.before, where
            adopt(volume, EVENTS)
            assert verify(volume, EVENTS, content=True).is_clean, where
            upgrade(prepared.new, volume, EVENTS)
            users_work_is_there(volume)
