# SPDX-License-Identifier: Apache-2.0
"""An assembly that goes on after a power cut: files have their size and time by then, not their content."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from jail_trees import snapshot

from cellblock.events import Event, Events, StepStarted
from cellblock.jail.assemble import Options, assemble
from cellblock.jail.verify import verify
from cellblock.jail.volume.shards import Shard

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps the owners of its files: needs root")

MIB = 1 << 20
SIZES = {"empty": 0, "small": 700, "page": 4096, "medium": 300_000, "large": 9 * MIB + 5}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    chance, root = random.Random(5), tmp_path / "image"
    root.mkdir()
    for name, size in SIZES.items():
        for number in range(3):
            path = root / f"{name}{number}"
            path.write_bytes(chance.randbytes(size))
            os.utime(path, ns=(0, 1_600_000_000_123_456_789 + number))
    with (root / "holes").open("wb") as file:
        for offset in (5 * MIB, 20 * MIB):
            file.seek(offset)
            file.write(b"data" * 1000)
        file.truncate(30 * MIB)
    (root / "link").hardlink_to(root / "large0")
    return root


@pytest.fixture(params=["directory", "tar"])
def source(image: Path, request: pytest.FixtureRequest) -> str:
    if request.param == "directory":
        return str(image)
    command = ["tar", "--sparse", "--format=pax", "-C", str(image), "-cf", f"{image}.tar", "."]
    subprocess.run(command, check=True)
    return f"{image}.tar"


def interrupted(source: str, volume: Path, options: Options) -> Path:
    """The tree of an assembly that was stopped when all files were written."""

    def stop(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step.startswith(("set directories", "join the")):
            raise KeyboardInterrupt

    events = Events()
    events.subscribe(stop)
    with pytest.raises(KeyboardInterrupt):
        assemble(source, volume, events, options=options)
    (root,) = (volume / ".cellblock").glob("s*/root")
    return root


def overwrite(path: Path, data: bytes, offset: int = 0) -> None:
    status = path.stat()
    with path.open("rb+") as file:
        file.seek(offset)
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("shard", [Shard(0, 1), Shard(1, 2)], ids=["alone", "shards"])
def test_what_lost_its_content_is_written_again(
    image: Path, source: str, shard: Shard, tmp_path: Path
) -> None:
    volume, options = tmp_path / "volume", Options(jobs=3, shard=shard)
    if shard.of > 1:
        assemble(source, volume, Events(), options=Options(shard=Shard(0, shard.of)))  # has no file
    root = interrupted(source, volume, options)
    for name, size in SIZES.items():
        if size:
            overwrite(root / f"{name}1", bytes(size))
            overwrite(root / f"{name}2", b"?", size - 1)
    overwrite(root / "holes", b"not a hole", 10 * MIB)
    overwrite(root / "holes", b"at the end", 30 * MIB - 10)
    result = assemble(source, volume, Events(), options=options)
    assert result.kept == len(SIZES) + 2, "one of each size, and two more that are empty"
    before, after = snapshot(image), snapshot(result.root)
    assert after == before
    assert verify(volume, Events(), content=True).is_clean


def test_what_is_whole_is_kept(image: Path, source: str, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    interrupted(source, volume, Options())
    result = assemble(source, volume, Events())
    assert result.kept == len(SIZES) * 3 + 1
    assert snapshot(result.root) == snapshot(image)
