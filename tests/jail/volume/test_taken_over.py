# SPDX-License-Identifier: Apache-2.0
"""A writer that was stopped, or cut off, wakes up in the tree that another has put in place meanwhile."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from stopped_writer import READING, stopped_writer, wake

from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import Options, assemble
from cellblock.jail.volume import shards, volume
from cellblock.jail.volume.shards import Shard
from cellblock.jail.volume.writer_lock import WriterLock

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="keeps owners: needs root")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    chance, root = random.Random(3), tmp_path / "image"
    for folder in range(8):
        (root / f"d{folder}").mkdir(parents=True)
        for file in range(60):
            (root / f"d{folder}/f{file}").write_bytes(chance.randbytes(9000))
    subprocess.run(["tar", "-C", str(root), "-cf", str(tmp_path / "image.tar"), "."], check=True)
    return tmp_path / "image.tar"


@pytest.mark.parametrize("shard", ["0/1", "1/2"])
def test_it_leaves_alone_what_users_made_of_the_tree(
    archive: Path, tmp_path: Path, short_lease: None, shard: str
) -> None:
    place, one = tmp_path / "volume", Shard.parse(shard)
    with stopped_writer("assemble", READING, place, str(archive), shard) as killed:
        killed.kill()  # so that the next goes on with what is there, and replaces what is not whole
    with stopped_writer("assemble", READING, place, str(archive), shard) as sleeper:
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
        said = wake(sleeper)
        assert "was taken over by" in said
        assert "run the same command again" in said
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
