# SPDX-License-Identifier: Apache-2.0
"""Fidelity on real filesystems, against GNU tar; what they cannot hold; shards; and interrupted runs."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jail_trees import snapshot

from cellblock.bench.harness.slow_fs import slow_filesystem
from cellblock.errors import CellblockError
from cellblock.events import Event, Events, StepStarted
from cellblock.jail.assemble import Options, assemble
from cellblock.jail.verify import verify
from cellblock.jail.volume.shards import Shard
from cellblock.jail.volume.volume import Volume
from tests.jail.manifests import read_manifest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, and keeps owners: needs root")

KILLS = int(os.environ.get("CELLBLOCK_KILLS", "8"))
"""Moments at which a run is killed; 200 for the full test."""
FULL_DISKS = int(os.environ.get("CELLBLOCK_FULL_DISKS", "4"))
SEED = int(os.environ.get("CELLBLOCK_SEED", "0"))
"""Sizes of a disk that is too small; 20 for the full test."""

TAR = ["--format=posix", "--xattrs", "--xattrs-include=*", "--sparse", "--numeric-owner"]

Mount = Callable[[str, int], Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a new filesystem of a kind and a size in MiB."""
    mounted: list[Path] = []

    def make(kind: str, size: int) -> Path:
        place = tmp_path / f"mnt-{kind}-{len(mounted)}"
        place.mkdir()
        if kind == "tmpfs":
            command = ["mount", "-t", "tmpfs", "-o", f"size={size}m,mode=755", "tmpfs", str(place)]
        else:
            if not shutil.which(f"mkfs.{kind}"):
                pytest.skip(f"mkfs.{kind} is not installed: `python3 build.py test` installs it")
            disk = tmp_path / f"{place.name}.img"
            with disk.open("wb") as file:
                file.truncate(size << 20)
            subprocess.run([f"mkfs.{kind}", "-q", str(disk)] if kind != "vfat" else ["mkfs.vfat", str(disk)],
                           check=True, capture_output=True)  # fmt: skip
            command = ["mount", "-o", "loop", str(disk), str(place)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"cannot mount {kind} here: {done.stderr}")
        mounted.append(place)
        return place

    yield make
    for place in reversed(mounted):
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs"])
def test_a_tar_becomes_what_gnu_tar_makes_of_it(
    everything: Path, tmp_path: Path, events: Events, mount: Mount, kind: str
) -> None:
    everything.chmod(0o755)
    archive = tmp_path / "a.tar"
    subprocess.run(["tar", "-C", str(everything), *TAR, "-cf", str(archive), "."], check=True)
    place = mount(kind, 400)
    theirs = place / "theirs"
    theirs.mkdir()
    subprocess.run(["tar", "-C", str(theirs), *TAR[1:], "-pxf", str(archive)], check=True)
    ours = assemble(str(archive), place / "volume", events).root
    assert snapshot(ours) == snapshot(theirs)
    # xfs shows ACLs a second time: that is no damage, no change by users, and nothing to be copied.
    found = verify(place / "volume", events)
    assert (found.n_damaged, found.n_users) == (0, 0)
    assert snapshot(assemble(str(ours), tmp_path / "copy", events).root) == snapshot(everything)


def test_what_a_filesystem_cannot_hold_is_an_error_with_its_consequence(small: Path, tmp_path: Path) -> None:
    os.chown(small / "home/ada", 1000, 1000)
    os.mkfifo(small / "fifo")
    (small / "etc/other-name").hardlink_to(small / "etc/os-release")
    events, told = Events(), list[Event]()
    events.subscribe(told.append)
    slow = tmp_path / "slow"
    slow.mkdir()
    with slow_filesystem(slow, latency_us=10, lossy=True) as place:
        with pytest.raises(
            CellblockError, match=r"cannot hold the jail: /.*nothing was assembled"
        ) as failure:
            assemble(str(small), place / "volume", events)
        assert "no fifos: named pipes of the image are not there" in str(failure.value)
        assert "no owners: every file is the mount's own user's" in str(failure.value)
        assert "--allow-lossy" in (failure.value.hint or "")
        assert not (place / "volume/root").exists()
        result = assemble(str(small), place / "volume", events, options=Options(allow_lossy=True))
        lost = {loss.what: (loss.count, loss.example) for loss in result.losses}
        assert lost == {
            "owners": (1, "/home/ada"),
            "fifos": (1, "/fifo"),
            "hard links": (1, "/etc/other-name"),
        }
        assert (result.root / "etc/other-name").read_text() == "ID=small\n", "a copy stands for the link"
        assert (place / "volume/.cellblock/losses.json").is_file()


def test_a_file_of_more_names_than_ext4_gives_it(
    small: Path, tmp_path: Path, events: Events, mount: Mount
) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(small, ".")
        for number in range(65_000):
            link = tarfile.TarInfo(f"./names/{number}")
            link.type, link.linkname = tarfile.LNKTYPE, "./etc/os-release"
            tar.addfile(link)
    with pytest.raises(CellblockError, match="Too many links") as failure:
        assemble(str(archive), mount("ext4", 400) / "volume", events)
    assert "use xfs, where a file may have more names than 65,000" in (failure.value.hint or "")
    root = assemble(str(archive), mount("xfs", 400) / "volume", events).root
    assert (root / "etc/os-release").stat().st_nlink == 65_001


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A tar of 1,600 files, some of them large, with links and directories of their own times."""
    root = tmp_path / "many"
    chance = random.Random(5)
    for folder in range(20):
        (root / f"d{folder}").mkdir(parents=True)
        for file in range(80):
            (root / f"d{folder}/f{file}").write_bytes(chance.randbytes(chance.choice((0, 300, 5000, 70_000))))
        (root / f"d{folder}/big").write_bytes(chance.randbytes(5 << 20) if folder % 5 == 0 else b"")
        (root / f"d{folder}/link").hardlink_to(root / f"d{folder // 2}/f1")
        os.utime(root / f"d{folder}", ns=(0, 1_234_567_890_123_456_789 + folder))
    subprocess.run(["tar", "-C", str(root), *TAR, "-cf", str(tmp_path / "many.tar"), "."], check=True)
    return root


def start(source: Path, volume: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cellblock.cli", "jail", "assemble", str(source), str(volume), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def begun(volume: Path, process: subprocess.Popen[str]) -> float:
    """When the process had begun to write: before, it only loads and reads."""
    while not list(volume.glob(".cellblock/staging-*/root")) and process.poll() is None:
        time.sleep(0.001)
    return time.monotonic()


def test_killed_at_any_moment_it_goes_on_and_finishes(many: Path, tmp_path: Path, events: Events) -> None:
    expected = snapshot(many)
    archive, chance = tmp_path / "many.tar", random.Random(SEED + 7)
    process = start(archive, tmp_path / "timing")
    began = begun(tmp_path / "timing", process)
    assert process.wait() == 0
    whole = time.monotonic() - began
    interrupted = kept = 0
    for attempt in range(KILLS):
        volume = tmp_path / f"volume{attempt}"
        process = start(archive, volume)
        began = begun(volume, process)
        try:
            # The first as soon as it writes; the others anywhere in the time that the fastest took.
            process.wait(chance.uniform(0.0, 1.0) * whole if attempt else 0)
            whole = min(whole, time.monotonic() - began)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        if (volume / "root").exists():
            assert snapshot(volume / "root") == expected
        else:
            interrupted += (volume / ".cellblock").exists()
        result = assemble(str(archive), volume, events)
        kept += result.kept
        assert snapshot(volume / "root") == expected
        assert Volume(volume).leftovers() == []
        entries = {entry.path: entry for entry in read_manifest(Volume(volume).manifest)}
        assert set(entries) == set(expected)
        shutil.rmtree(volume)
    assert interrupted, "the moments were not spread over the run"


def test_an_interrupted_run_writes_nothing_again_that_is_whole(
    many: Path, tmp_path: Path, events: Events
) -> None:
    archive, volume = tmp_path / "many.tar", tmp_path / "volume"

    def stop(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == "set directories' owners and times":
            raise KeyboardInterrupt

    stopping = Events()
    stopping.subscribe(stop)
    with pytest.raises(KeyboardInterrupt):
        assemble(str(archive), volume, stopping)
    (staging,) = Volume(volume).leftovers()
    (staging / "root/d3/f4").write_bytes(b"cut off")
    (staging / "probe-1").mkdir()  # of a run that was killed while it tried what the filesystem holds
    inode = (staging / "root/d3/f5").stat().st_ino
    result = assemble(str(archive), volume, events)
    files = sum(path.is_file() for path in many.rglob("*")) - 20
    assert result.kept == files - 1
    assert (volume / "root/d3/f5").stat().st_ino == inode
    assert Volume(volume).leftovers() == []
    assert snapshot(volume / "root") == snapshot(many)


def test_a_full_disk_leaves_the_volume_as_it_was_and_the_same_command_finishes(
    many: Path, tmp_path: Path, events: Events, mount: Mount
) -> None:
    packed = tmp_path / "many.tar.zst"  # so small that the space it takes is only known when it is taken
    subprocess.run(["zstd", "-q", "-1", str(tmp_path / "many.tar"), "-o", str(packed)], check=True)
    size = sum(path.stat().st_size for path in many.rglob("*") if path.is_file()) >> 20
    chance, expected = random.Random(SEED + 3), snapshot(many)
    place = mount("tmpfs", size * 3)
    filled = 0
    for _ in range(FULL_DISKS):
        ballast = place / "ballast"
        with ballast.open("wb") as file:
            os.posix_fallocate(
                file.fileno(), 0, int((size * 3 - chance.uniform(0.1, 0.9) * size) * (1 << 20))
            )
        with pytest.raises(
            CellblockError, match=r"is full; what had been written was removed|nothing was written"
        ):
            assemble(str(packed), place / "volume", events)
        filled += 1
        assert not (place / "volume/root").exists()
        assert Volume(place / "volume").leftovers() == []
        ballast.unlink()
        assemble(str(packed), place / "volume", events)
        assert snapshot(place / "volume/root") == expected
        shutil.rmtree(place / "volume")
    assert filled == FULL_DISKS


def test_shards_fill_a_volume_together_and_the_last_seals_it(
    many: Path, everything: Path, tmp_path: Path, events: Events
) -> None:
    everything.chmod(0o755)
    expected = snapshot(everything)
    results = []
    for index in (2, 0, 1):
        options = Options(shard=Shard(index, 3))
        results.append(assemble(str(everything), tmp_path / "volume", events, options=options))
        assert (tmp_path / "volume/root").exists() == (index == 1)
    assert [one.waiting for one in results] == [(0, 1), (1,), ()]
    assert snapshot(tmp_path / "volume/root") == expected
    assemble(str(everything), tmp_path / "whole", events)
    assert (
        Volume(tmp_path / "volume").manifest.read_bytes() == Volume(tmp_path / "whole").manifest.read_bytes()
    )
    processes = [start(tmp_path / "many.tar", tmp_path / "both", "--shard", f"{n}/2") for n in range(2)]
    for process in processes:
        out, error = process.communicate()
        assert process.returncode == 0, out + error
    assert snapshot(tmp_path / "both/root") == snapshot(many)
    assert list((tmp_path / "both/.cellblock").glob("shards-*")) == []


def test_a_killed_shard_goes_on(many: Path, tmp_path: Path) -> None:
    volume, archive = tmp_path / "volume", tmp_path / "many.tar"
    assert start(archive, volume, "--shard", "0/3").wait() == 0  # of three, which then are two
    process = start(archive, volume, "--shard", "0/2")
    time.sleep(0.6)
    process.kill()
    process.communicate()
    for index in (1, 0):
        process = start(archive, volume, "--shard", f"{index}/2")
        out, error = process.communicate()
        assert process.returncode == 0, out + error
    assert snapshot(volume / "root") == snapshot(many)
    assert Volume(volume).leftovers() == []


def test_shards_that_were_given_up_leave_nothing_beside_a_whole_tree(
    small: Path, tmp_path: Path, events: Events
) -> None:
    assert assemble(str(small), tmp_path / "volume", events, options=Options(shard=Shard(1, 2))).waiting
    assert Volume(tmp_path / "volume").leftovers()
    assert assemble(str(small), tmp_path / "volume", events).changed
    assert Volume(tmp_path / "volume").leftovers() == []
