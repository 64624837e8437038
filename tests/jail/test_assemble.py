# SPDX-License-Identifier: Apache-2.0
"""`jail assemble`: everything comes through, and whatever happens the volume is whole or untouched."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jail_trees import snapshot

from cellblock.errors import CellblockError
from cellblock.events import Event, Events, Progress, StepStarted
from cellblock.jail.assemble import Options, assemble
from cellblock.jail.volume import filesystem_capabilities
from cellblock.jail.volume.shards import Shard
from cellblock.jail.volume.volume import Volume
from tests.jail.manifests import read_manifest
from tests.memory_disk import memory_disk

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")

ASSEMBLE = (
    "import sys; from pathlib import Path; from cellblock.events import Events; "
    "from cellblock.jail.assemble import assemble; "
    "print(assemble(sys.argv[1], Path(sys.argv[2]), Events()).changed)"
)


def start(source: Path, volume: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", ASSEMBLE, str(source), str(volume)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def staging(volume: Path) -> list[Path]:
    return list((volume / ".cellblock").glob("staging-*"))


def test_a_directory_comes_through_exactly(everything: Path, tmp_path: Path, events: Events) -> None:
    os.chown(everything, 5, 5)
    everything.chmod(0o777)
    result = assemble(str(everything), tmp_path / "volume", events)
    found, expected = snapshot(tmp_path / "volume/root"), snapshot(everything)
    mode, uid, gid = found[b""][:3]
    assert (mode, uid, gid) == ("0o40755", 0, 0), "the top is root's alone to write"
    assert found[b""][3:] == expected[b""][3:]
    del found[b""], expected[b""]
    assert found == expected
    assert result.changed
    assert result.entries == len(expected) + 1
    for name in ("sparse", "hole"):
        assert (tmp_path / "volume/root" / name).stat().st_blocks * 512 < 100_000, f"{name} has holes"


def test_the_manifest_says_what_was_written(everything: Path, tmp_path: Path, events: Events) -> None:
    assemble(str(everything), tmp_path / "volume", events)
    volume = Volume(tmp_path / "volume")
    seen = snapshot(volume.root)
    entries = read_manifest(volume.manifest)
    assert {entry.path for entry in entries} == set(seen)
    for entry in entries:
        if entry.kind == "f":
            assert seen[entry.path][5] == (entry.size, entry.digest)
    links = {entry.path: entry.target for entry in entries if entry.kind == "h"}
    assert links == {b"usr/bin/big": b"hard-link", b"z-hard-link": b"hard-link"}
    state = volume.state()
    assert state is not None
    assert state.entries == len(entries)


def test_a_second_run_changes_nothing(small: Path, tmp_path: Path, events: Events) -> None:
    assemble(str(small), tmp_path / "volume", events)
    (tmp_path / "volume/root/home/ada/work").write_text("precious")
    before = snapshot(tmp_path / "volume")
    result = assemble(str(small), tmp_path / "volume", events)
    assert not result.changed
    assert snapshot(tmp_path / "volume") == before


def test_another_source_is_refused_by_name(small: Path, tmp_path: Path, events: Events) -> None:
    assemble(str(small), tmp_path / "volume", events)
    (tmp_path / "volume/root/home/ada/work").write_text("precious")
    before = snapshot(tmp_path / "volume")
    (small / "etc/new").touch()
    with pytest.raises(CellblockError, match=r"volume holds .*small \(sha256:.*not .*small \(sha256:"):
        assemble(str(small), tmp_path / "volume", events)
    assert snapshot(tmp_path / "volume") == before


def test_a_root_from_elsewhere_is_refused(small: Path, tmp_path: Path, events: Events) -> None:
    (tmp_path / "volume/root/home").mkdir(parents=True)
    with pytest.raises(CellblockError, match="no record of assembling it; nothing was changed"):
        assemble(str(small), tmp_path / "volume", events)
    assert sorted(path.name for path in (tmp_path / "volume").iterdir()) == ["root"]


def test_an_empty_root_is_filled(small: Path, tmp_path: Path, events: Events) -> None:
    (tmp_path / "volume/root").mkdir(parents=True)
    assert assemble(str(small), tmp_path / "volume", events).changed


def test_a_volume_that_others_may_write_is_refused_when_in_use(
    small: Path, tmp_path: Path, events: Events
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    (volume / "data").touch()
    with pytest.raises(CellblockError, match="not root's alone to write"):
        assemble(str(small), volume, events)
    (volume / "data").unlink()
    assemble(str(small), volume, events)
    assert volume.stat().st_mode & 0o7777 == 0o755


def test_a_volume_inside_its_source_is_refused(small: Path, events: Events) -> None:
    with pytest.raises(CellblockError, match="lies inside its source"):
        assemble(str(small), small / "volume", events)


def test_progress_ends_at_the_total(everything: Path, tmp_path: Path) -> None:
    events, seen = Events(), list[Event]()
    events.subscribe(seen.append)
    assemble(str(everything), tmp_path / "volume", events)
    last = [event for event in seen if isinstance(event, Progress)][-1]
    assert last.done == last.total > 12 << 20


def test_a_file_that_changes_while_it_is_read_fails_and_leaves_nothing(
    small: Path, tmp_path: Path, events: Events
) -> None:
    def change(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == "read and write":
            (small / "etc/os-release").write_text("ID=changed\n")

    events.subscribe(change)
    with pytest.raises(CellblockError, match="small changed while it was read; nothing was assembled"):
        assemble(str(small), tmp_path / "volume", events)
    assert not (tmp_path / "volume/root").exists()
    assert not staging(tmp_path / "volume")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A tree that takes long enough to be killed in the middle of."""
    root = tmp_path / "many"
    for folder in range(20):
        (root / f"d{folder}").mkdir(parents=True)
        for file in range(75):
            (root / f"d{folder}/f{file}").write_bytes(b"%d" % file * 400)
    return root


@pytest.mark.integration  # not for what it needs but because it takes a minute
def test_killed_at_any_moment_it_leaves_all_or_nothing_and_then_finishes(many: Path, tmp_path: Path) -> None:
    expected = snapshot(many)
    whole = 60.0
    for attempt in range(2):  # the first one also reads the programs from disk
        began = time.monotonic()
        assert start(many, tmp_path / f"timing{attempt}").wait() == 0
        whole = min(whole, time.monotonic() - began)
    chance = random.Random(7)
    interrupted = 0
    for attempt in range(20):
        volume = tmp_path / f"volume{attempt}"
        process = start(many, volume)
        time.sleep(chance.uniform(0.1, 1.0) * whole)
        process.kill()
        process.communicate()
        if (volume / "root").exists():
            assert snapshot(volume / "root") == expected
        else:
            interrupted += 1
        process = start(many, volume)
        assert process.communicate()[0].strip() in ("True", "False")
        assert process.returncode == 0
        assert not staging(volume)
        assert snapshot(volume / "root") == expected
    assert interrupted, "the moments were not spread over the run"


def test_two_at_once_write_once(many: Path, tmp_path: Path) -> None:
    first, second = (start(many, tmp_path / "volume") for _ in range(2))
    answers = [process.communicate() for process in (first, second)]
    statuses = [first.returncode, second.returncode]
    assert 0 in statuses
    assert "True\n" in [out for out, _ in answers]
    for status, (out, error) in zip(statuses, answers, strict=True):
        assert status == 0 or "is being written by `jail assemble" in error, out + error
    assert snapshot(tmp_path / "volume/root") == snapshot(many)


def test_the_holder_of_the_lock_is_named(small: Path, tmp_path: Path, events: Events) -> None:
    volume = Volume(tmp_path / "volume")
    volume.prepare()
    script = (
        "import sys, time; from pathlib import Path; from cellblock.jail.volume.volume import Volume\n"
        "with Volume(Path(sys.argv[1])).lock('jail upgrade x'): print('locked', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(volume.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(CellblockError, match=rf"`jail upgrade x` \(process {holder.pid} on"):
            assemble(str(small), volume.path, events)
        holder.kill()
    assert assemble(str(small), volume.path, events).changed, "a killed holder blocks nobody"
    with (volume.private / "lock").open("rb+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 2 MB and 100 files."""
    with memory_disk(tmp_path / "tiny", "size=2m,nr_inodes=100,mode=755") as folder:
        yield folder


def test_too_little_space_is_refused_before_writing(small: Path, tiny: Path, events: Events) -> None:
    (small / "big").write_bytes(b"x" * (3 << 20))
    with pytest.raises(
        CellblockError, match=r"has 2\.1 MB free, and the jail needs at least 3\.\d MB; nothing was wri"
    ):
        assemble(str(small), tiny, events)
    (small / "big").write_bytes(b"")
    for number in range(120):
        (small / f"f{number}").symlink_to("x")
    with pytest.raises(CellblockError, match=r"room for 9\d more files, and the jail has 126"):
        assemble(str(small), tiny, events)


def test_a_sparse_file_needs_no_more_than_its_data(small: Path, tiny: Path, events: Events) -> None:
    os.truncate(small / "etc/os-release", 10 << 20)
    assert assemble(str(small), tiny, events).changed


def test_a_disk_that_fills_up_is_left_as_it_was(
    small: Path, tiny: Path, events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        (small / f"big{number}").write_bytes(os.urandom(300_000))
    monkeypatch.setattr(filesystem_capabilities, "check_space", lambda *_: None)
    with pytest.raises(CellblockError, match="is full; what had been written was removed"):
        assemble(str(small), tiny, events)
    assert [path.name for path in tiny.iterdir()] == [".cellblock"]
    assert [path.name for path in (tiny / ".cellblock").iterdir()] == ["lock"]
    with pytest.raises(CellblockError, match="is full; what had been written stays"):
        _ = [assemble(str(small), tiny, events, options=Options(shard=Shard(n, 2))) for n in range(2)]
    assert list(tiny.glob(".cellblock/shards-*/root/big*")), "other shards may have written some of it"
