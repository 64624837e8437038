"""A writer that was stopped, or cut off, wakes up in the tree that another has put in place meanwhile."""

from __future__ import annotations

import fcntl
import functools
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import Options, assemble
from cellblock.jail.volume import shards, volume
from cellblock.jail.volume.shards import Shard
from cellblock.jail.volume.writer_lock import WriterLock

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="keeps owners: needs root")

LEASE_S = 1.0
OTHER_HOST = f"""
import dataclasses, functools, sys
from pathlib import Path
from cellblock.errors import CellblockError
from cellblock.events import Events, Progress
from cellblock.jail.assemble import Options, assemble
from cellblock.jail.volume import volume, writer_lock
from cellblock.jail.volume.shards import Shard
writer_lock.fcntl.lockf = lambda *a: None
volume.WriterLock = functools.partial(writer_lock.WriterLock, lease_s={LEASE_S})
volume.myself = lambda what: dataclasses.replace(writer_lock.myself(what), boot="another-host")

def stop(event):
    # The core tells this before it reads on; what it has read by then may still be written.
    if isinstance(event, Progress):
        print("writing", flush=True)
        sys.stdin.readline()

events = Events()
events.subscribe(stop)
source, place, shard = sys.argv[1:]
try:
    assemble(source, Path(place), events, options=Options(jobs=4, shard=Shard.parse(shard)))
    print("assembled")
except CellblockError as error:
    print(error)
"""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    chance, root = random.Random(3), tmp_path / "image"
    for folder in range(8):
        (root / f"d{folder}").mkdir(parents=True)
        for file in range(60):
            (root / f"d{folder}/f{file}").write_bytes(chance.randbytes(9000))
    subprocess.run(["tar", "-C", str(root), "-cf", str(tmp_path / "image.tar"), "."], check=True)
    return tmp_path / "image.tar"


def begin(archive: Path, place: Path, shard: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OTHER_HOST, str(archive), str(place), shard]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


@pytest.mark.parametrize("shard", ["0/1", "1/2"])
def test_it_leaves_alone_what_users_made_of_the_tree(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard: str
) -> None:
    monkeypatch.setattr(fcntl, "lockf", lambda *arguments: None)  # each host has its own
    monkeypatch.setattr(volume, "WriterLock", functools.partial(WriterLock, lease_s=LEASE_S))
    place, one = tmp_path / "volume", Shard.parse(shard)
    with begin(archive, place, shard) as killed:
        killed.kill()  # so that the next goes on with what is there, and replaces what is not whole
    with begin(archive, place, shard) as sleeper:
        os.kill(sleeper.pid, signal.SIGSTOP)
        for index in range(one.of):
            until = time.monotonic() + 60
            while True:
                try:
                    assemble(str(archive), place, Events(), options=Options(shard=Shard(index, one.of)))
                    break
                except CellblockError:
                    assert time.monotonic() < until
        root = place / "root"
        for path in root.rglob("f*"):
            path.write_text("a user's")
        os.kill(sleeper.pid, signal.SIGCONT)
        told, _ = sleeper.communicate("\n" * 1000)
        assert "was taken over by" in told
        assert "run the same command again" in told
        assert {path.read_text() for path in root.rglob("f*")} == {"a user's"}
        assert not list((place / ".cellblock").glob("staging-*"))


def test_a_full_volume_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(WriterLock, "_take_record", full)
    target = volume.Volume(tmp_path / "volume")
    target.prepare()
    with pytest.raises(CellblockError, match="is full"), shards.patient_lock(target, "test"):
        pass
