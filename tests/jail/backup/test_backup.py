# SPDX-License-Identifier: Apache-2.0
"""`jail backup` and `jail restore`, by real restic: what was there comes back, or it is said why not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from deb_trees import Deb, DebTree
from jail_trees import make_everything, snapshot
from restic_server import s3_server

from cellblock.errors import CellblockError, UsageError
from cellblock.events import Event, Events, Message
from cellblock.jail.assemble import assemble
from cellblock.jail.backup.backup import BackupOptions, BackupResult, backup
from cellblock.jail.backup.one_path import restore_path
from cellblock.jail.backup.repository import Repository, find_repository
from cellblock.jail.backup.restic import Restic
from cellblock.jail.backup.restore import RestoreOptions, RestoreResult, restore
from cellblock.jail.backup.retention import Keep
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import upgrade
from cellblock.jail.verify import verify
from cellblock.jail.volume.volume import Volume
from tests.memory_disk import memory_disk

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root"),
    pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed"),
]
EVENTS, PASSWORD = Events(), "of the tests"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RESTIC_PASSWORD", PASSWORD)
    # What is damaged is to be read; and the copies of one repository pass for one to restic.
    monkeypatch.setenv("RESTIC_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def empty_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: restic takes seconds to choose how slow a password is to be."""
    folder = tmp_path_factory.mktemp("restic") / "repository"
    command = ["restic", "init", "--quiet", "--no-cache", "--repo", str(folder)]
    subprocess.run(command, env={**os.environ, "RESTIC_PASSWORD": PASSWORD}, check=True)
    return folder


@pytest.fixture
def repository(empty_repository: Path, tmp_path: Path) -> Repository:
    shutil.copytree(empty_repository, tmp_path / "repository")
    return find_repository(str(tmp_path / "repository"))


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A jail in which users work: with all that restic 0.14 is known to lose."""
    make_everything(tmp_path / "image")
    assemble(str(tmp_path / "image"), tmp_path / "volume", EVENTS)
    home = tmp_path / "volume/root/home"
    (home / "ada/deep").mkdir(parents=True)
    (home / "ada/thesis").write_text("one")
    os.link(home / "ada/thesis", home / "ada/deep/same-thesis")
    (home / "ada/link").symlink_to("thesis")
    os.link(home / "ada/link", home / "ada/deep/same-link", follow_symlinks=False)
    (home / "ada/bad-link").symlink_to(os.fsdecode(b"\xff\xfe no utf-8"))
    os.lchown(home / "ada/bad-link", 1000, 1001)
    os.mkfifo(home / "ada/pipe")
    os.link(home / "ada/pipe", home / "ada/deep/same-pipe")
    for path in (home / "ada", home / "ada/deep", home):
        os.chown(path, 1000, 1001)
        os.utime(path, ns=(1_700_000_000_111_222_333, 1_700_000_000_111_222_333))
    with (home / "ada/disk.img").open("wb") as disk:
        disk.truncate(32 << 20)
        disk.seek(20 << 20)
        disk.write(b"data")
    return tmp_path / "volume"


def saved(volume: Path, repository: Repository, **options: object) -> BackupResult:
    return backup(volume, repository, EVENTS, BackupOptions(**options))  # type: ignore[arg-type]


def brought_back(volume: Path, repository: Repository, **options: object) -> RestoreResult:
    return restore(volume, repository, EVENTS, RestoreOptions(**options))  # type: ignore[arg-type]


def on_disk(root: Path) -> dict[str, int]:
    """Bytes that sparse files take."""
    return {name: (root / name).stat().st_blocks * 512 for name in ("sparse", "hole", "home/ada/disk.img")}


def test_a_restored_volume_is_the_one_that_was_backed_up(
    volume: Path, repository: Repository, tmp_path: Path
) -> None:
    places = [volume / "root/var/cache/enroot" / name for name in ("users/0", "locks")]
    for place in places:
        place.mkdir(parents=True)
    before, sparse = snapshot(volume / "root"), on_disk(volume / "root")
    for place in places:  # what is in the cache of container images is fetched again
        times = place.stat()
        (place / "images").mkdir()
        (place / "images/file").write_bytes(bytes(4096))
        os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))
    made = saved(volume, repository)
    assert made.unread == made.vanished == made.changed == ()
    result = brought_back(tmp_path / "new", repository)
    assert snapshot(tmp_path / "new/root") == before
    assert all(bytes_ <= sparse[name] + 65536 for name, bytes_ in on_disk(tmp_path / "new/root").items())
    assert result.mended
    assert result.mended.losses == ()
    assert result.mended.moving == 0
    assert result.damaged == 0
    assert verify(tmp_path / "new", EVENTS, content=True).is_clean
    assert Volume(tmp_path / "new").state() == Volume(volume).state()
    names = [{one.name for one in Volume(path).lasting()} for path in (volume, tmp_path / "new")]
    assert names[0] == names[1] == {"backup", "controls", "manifest", "state.json"}
    assert Volume(tmp_path / "new").leftovers() == []


def test_a_restored_volume_can_be_rolled_back(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "debs").mkdir()
    old = DebTree.make(tmp_path / "old", tmp_path / "debs", Deb("foo", "1"))
    DebTree.make(tmp_path / "next", tmp_path / "debs", Deb("foo", "2"))
    assemble(str(tmp_path / "old"), tmp_path / "volume", EVENTS)
    upgrade(str(tmp_path / "next"), tmp_path / "volume", EVENTS)
    saved(tmp_path / "volume", repository)
    brought_back(tmp_path / "new", repository)
    rollback(tmp_path / "new", EVENTS)
    assert DebTree(tmp_path / "new/root", tmp_path / "debs").versions() == old.versions()


def test_the_next_backup_goes_on_from_the_last_wherever_the_volume_is(
    volume: Path, repository: Repository, tmp_path: Path
) -> None:
    other = saved(volume, repository, name="another")
    first = saved(volume, repository, name="mine")
    moved = tmp_path / "elsewhere/jail"
    moved.parent.mkdir()
    volume.rename(moved)
    (moved / "root/home/ada/thesis").write_text("two")
    second = saved(moved, repository, keep=Keep(last=1))
    assert second.name == "mine"  # remembered
    assert second.parent.startswith(first.snapshot)
    assert second.added < 100_000 < first.bytes
    assert second.removed == 1
    left = {one.id[:8] for one in Restic(repository).snapshots()}
    assert left == {other.snapshot[:8], second.snapshot[:8]}, "another volume's are not ours to remove"
    with pytest.raises(CellblockError, match="several volumes: another, mine"):
        brought_back(tmp_path / "new", repository)


def test_a_jail_is_replaced_whole_and_the_old_one_kept(
    volume: Path, repository: Repository, tmp_path: Path
) -> None:
    before = snapshot(volume / "root")
    saved(volume, repository)
    (volume / "root/home/ada/late").write_text("after the backup")
    (volume / ".cellblock/losses.json").write_text("[]")
    now = snapshot(volume / "root")
    with pytest.raises(CellblockError, match="holds a jail; nothing was changed"):
        brought_back(volume, repository)
    with (volume / "root/home/ada/late").open() as job:
        result = brought_back(volume, repository, replace=True)
        assert job.read() == "after the backup"
    assert snapshot(volume / "root") == before
    assert result.replaced is not None
    assert snapshot(result.replaced / "root") == now
    assert (result.replaced / ".cellblock/losses.json").exists()
    assert not (volume / ".cellblock/losses.json").exists()


class Home:
    """Restoring one path."""

    def __init__(self, volume: Path, repository: Repository) -> None:
        self.volume, self.repository = volume, repository

    def back(self, path: str, to: str | None = None, **options: object) -> RestoreResult:
        wanted = RestoreOptions(**options)  # type: ignore[arg-type]
        return restore_path(self.volume, self.repository, EVENTS, wanted, path, to)


def test_one_path_comes_back(volume: Path, repository: Repository) -> None:
    before = snapshot(volume / "root")
    saved(volume, repository)
    home = Home(volume, repository)
    (volume / "root/home/ada/thesis").write_text("spoilt")
    with pytest.raises(CellblockError, match="/home/ada exists; nothing was changed"):
        home.back("/home/ada")
    result = home.back("/home/ada", replace=True)
    after = snapshot(volume / "root")
    assert {name for name in before if before[name] != after.get(name)} == {b"home"}, "but for its time"
    assert result.replaced is not None
    assert (result.replaced / "ada/thesis").read_text() == "spoilt"
    home.back("/home/ada/bad-link", "/home/bad-link")
    assert os.fsencode((volume / "root/home/bad-link").readlink()) == b"\xff\xfe no utf-8"
    with pytest.raises(CellblockError, match="has no /home/eve") as gone:
        home.back("/home/eve")
    assert f"`jail backup {volume} {repository} --list`" in gone.value.hint


def test_a_path_is_never_restored_through_a_link(
    volume: Path, repository: Repository, tmp_path: Path
) -> None:
    saved(volume, repository)
    (tmp_path / "outside").mkdir()
    (volume / "root/home/lure").symlink_to(tmp_path / "outside")
    with pytest.raises(CellblockError, match="the folder that /home/lure/x belongs into is not there") as no:
        Home(volume, repository).back("/home/ada/thesis", "/home/lure/x")
    assert "--path /home/lure;" in no.value.hint
    assert list((tmp_path / "outside").iterdir()) == []
    with pytest.raises(UsageError, match="no path below the jail's root"):
        Home(volume, repository).back("/home/../../etc/passwd")


def test_jobs_write_while_the_backup_runs(volume: Path, repository: Repository, tmp_path: Path) -> None:
    stop = threading.Event()
    busy = volume / "root/home/ada/busy"
    busy.mkdir()

    def job() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            (busy / f"{turn % 40}").write_bytes(os.urandom(turn % 5000))
            (busy / f"{(turn + 20) % 40}").unlink(missing_ok=True)

    writer = threading.Thread(target=job)
    writer.start()
    try:
        made = saved(volume, repository)
    finally:
        stop.set()
        writer.join()
    assert made.changed
    assert made.unread == ()
    result = brought_back(tmp_path / "new", repository)
    assert result.mended
    assert result.mended.losses == ()
    assert result.mended.moving > 0


def said(repository: Repository) -> tuple[Events, list[str]]:
    texts: list[str] = []
    events = Events()

    def read(event: Event) -> None:
        if isinstance(event, Message):
            texts.append(event.text)

    events.subscribe(read)
    return events, texts


@pytest.fixture
def other_restic(repository: Repository) -> Iterator[subprocess.Popen[bytes]]:
    """Another restic in the middle of its work: it waits for its input, and holds a lock."""
    command = ["restic", "backup", "--stdin"]
    environment = {**os.environ, **repository.environment}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    locks = Path(repository.location) / "locks"
    while not any(locks.iterdir()):
        assert process.poll() is None
    yield process
    process.kill()
    process.wait()


def test_a_repository_in_use_keeps_its_old_snapshots_and_a_dead_lock_holds_nobody_up(
    volume: Path, repository: Repository, other_restic: subprocess.Popen[bytes]
) -> None:
    saved(volume, repository)
    events, texts = said(repository)
    options = BackupOptions(keep=Keep(last=1))
    assert backup(volume, repository, events, options).removed == 0
    assert any("old snapshots were not removed" in text and "in use" in text for text in texts)
    other_restic.send_signal(signal.SIGKILL)
    other_restic.wait()
    assert backup(volume, repository, events, options).removed == 2


def test_errors_say_what_to_do(
    volume: Path, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        CellblockError, match=r"no repository at .*/none\n  next: `jail backup VOLUME REPO --init`"
    ):
        saved(volume, find_repository(str(tmp_path / "none")))
    with pytest.raises(CellblockError, match=r"u:\*\*\*@127.0.0.1:9/ cannot be reached") as refused:
        saved(volume, find_repository("rest:http://u:secret@127.0.0.1:9/"))
    assert "secret" not in str(refused.value)
    monkeypatch.setenv("RESTIC_PASSWORD", "another")
    with pytest.raises(CellblockError, match="the password is not"):
        saved(volume, find_repository(repository.location))
    monkeypatch.delenv("RESTIC_PASSWORD")
    with pytest.raises(UsageError, match="nothing says the password"):
        find_repository(repository.location)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    by_file = find_repository(repository.location, tmp_path / "password")
    with pytest.raises(CellblockError, match="has no snapshot that Cellblock made"):
        brought_back(tmp_path / "new", by_file)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CellblockError, match="restic is not installed\n  next: apt-get install restic"):
        saved(volume, by_file)


def test_a_damaged_repository_gives_no_half_volume(
    volume: Path, repository: Repository, tmp_path: Path
) -> None:
    with (volume / "root/home/ada/random").open("wb") as file:
        file.write(os.urandom(200_000))
    saved(volume, repository)
    packs = sorted(Path(repository.location).glob("data/*/*"), key=lambda path: path.stat().st_size)
    with packs[-1].open("r+b") as pack:  # that of the random bytes
        pack.seek(50_000)
        pack.write(b"another byte, and more")
    with pytest.raises(CellblockError, match=r"damaged|cannot be restored whole") as failure:
        brought_back(tmp_path / "new", repository)
    assert "restic check" in str(failure.value)
    assert not (tmp_path / "new/root").exists()
    assert Volume(tmp_path / "new").leftovers() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 12 MB."""
    with memory_disk(tmp_path / "small", "size=12m,mode=755") as folder:
        yield folder


def test_what_does_not_fit_is_refused_and_leaves_nothing(
    volume: Path, repository: Repository, small_disk: Path
) -> None:
    saved(volume, repository)
    with pytest.raises(CellblockError, match=r"MB in .* files; nothing was written"):
        brought_back(small_disk / "volume", repository)
    assert sorted(one.name for one in (small_disk / "volume").rglob("*")) == [".cellblock", "lock"]
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (11 << 20))
    shutil.copytree(repository.location, small_disk / "full", dirs_exist_ok=True)
    (volume / "root/home/ada/more").write_bytes(os.urandom(4 << 20))
    with pytest.raises(CellblockError, match=r"no space left; no snapshot was made|there is no space left"):
        saved(volume, find_repository(str(small_disk / "full")))
    assert len(Restic(repository).snapshots()) == 1


def test_a_bucket_of_an_s3_server(volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with s3_server(tmp_path) as location:
        bucket = find_repository(location)
        saved(volume, bucket, init=True)
        brought_back(tmp_path / "new", bucket)
    assert snapshot(tmp_path / "new/root") == snapshot(volume / "root")


KILLS = int(os.environ.get("CELLBLOCK_BACKUP_KILLS", "1"))

RESTORE = """
import sys
from pathlib import Path
from cellblock.events import Events
from cellblock.jail.backup.repository import find_repository
from cellblock.jail.backup.restore import RestoreOptions, restore
restore(Path(sys.argv[1]), find_repository(sys.argv[2]), Events(), RestoreOptions(replace=True))
"""


def test_a_restore_that_is_killed_is_finished_by_the_same_command(
    volume: Path, repository: Repository
) -> None:
    saved(volume, repository)
    before = snapshot(volume / "root")
    (volume / "root/home/ada/late").write_text("late")
    command = [sys.executable, "-c", RESTORE, str(volume), repository.location]
    for number in range(KILLS):
        process = subprocess.Popen(command)
        try:
            process.wait(timeout=0.3 + 2.7 * (number + 1) / (KILLS + 1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert (volume / "root/usr/bin/passwd").exists()
        assert (volume / "root/home/ada/late").exists() or snapshot(volume / "root") == before
    subprocess.run(command, check=True)
    assert snapshot(volume / "root") == before
    assert verify(volume, EVENTS).is_clean
    assert Volume(volume).leftovers() == []
