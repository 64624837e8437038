# SPDX-License-Identifier: Apache-2.0
"""`jail status`: what it says of a volume in each state, without ever writing to it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deb_trees import Deb
from stopped_writer import READING, stopped_writer, wake
from upgraded_jail import FOO, FOO2, Jail

from cellblock.errors import CellblockError
from cellblock.jail.backup.backup import BackupOptions, backup
from cellblock.jail.backup.repository import find_repository
from cellblock.jail.status import Status, status
from cellblock.jail.upgrade import upgrade
from cellblock.jail.volume.volume import Volume
from cellblock.jail.volume.writer_lock import Holder
from cellblock.paths import PROJECT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a volume belongs to root")


def everything(volume: Path) -> dict[str, tuple[int, ...]]:
    """All that a writer would change: times of change, sizes, inodes."""
    return {
        str(path): (found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino)
        for path in (volume, *volume.rglob("*"))
        if (found := path.lstat())
    }


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cellblock.cli", "jail", "status", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def hints(found: Status) -> list[str]:
    return [one.hint for one in found.problems]


def test_it_says_what_the_volume_is_made_of_and_what_was_done_to_it(upgraded: Jail) -> None:
    found = status(upgraded.path)
    assert found.state is not None
    assert found.state.source.reference == str(upgraded.folder / "new")
    assert found.last_change is not None
    assert (found.last_change.operation, found.last_change.number) == ("upgrade", 1)
    assert (found.undoable, len(found.kept), found.unfinished, found.problems) == (1, 1, False, ())
    assert found.writer is None
    upgraded.rollback()
    found = status(upgraded.path)
    assert (found.undoable, len(found.kept)) == (0, 2)
    assert found.last_change is not None
    assert found.last_change.operation == "rollback"


def test_it_tells_free_space_and_inodes_of_the_volumes_filesystem(upgraded: Jail) -> None:
    space, now = status(upgraded.path).space, os.statvfs(upgraded.path)
    assert space.bytes == now.f_blocks * now.f_frsize
    assert 0 < space.free_bytes <= space.bytes
    assert space.inodes == now.f_files


def test_it_writes_nothing(upgraded: Jail) -> None:
    before = everything(upgraded.path)
    status(upgraded.path)
    assert command(str(upgraded.path)).returncode == 0
    assert everything(upgraded.path) == before


def test_the_command_prints_all_of_it_for_people_and_for_programs(upgraded: Jail) -> None:
    (upgraded.root / "home/ada").mkdir(parents=True)
    lines = command(str(upgraded.path)).stdout.splitlines()
    said = {line[:9].strip(): line[10:] for line in lines}
    assert said["image"].startswith(f"{upgraded.folder / 'new'}, since ")
    assert said["digest"].startswith("sha256:")
    assert said["writer"] == "none"
    assert said["changed"].startswith("upgrade 1, ")
    assert said["rollback"] == "1 can be undone; records of 1 are kept"
    assert said["backup"] == "none is noted in the volume"
    # "little" follows "free" on a file system that is nearly full.
    assert re.match(r".* free(, little)?; \d+ of \d+ inodes free", said["space"])
    assert said["homes"] == "1 folder in /home"
    record = json.loads(command(str(upgraded.path), "--json").stdout)
    assert record["source"]["id"] == said["digest"]
    assert record["homes"] == ["ada"]
    assert record["undoable"] == 1
    assert (record["writer"], record["last_backup"], record["problems"]) == (None, None, [])


def test_a_folder_without_a_jail_is_said(tmp_path: Path) -> None:
    with pytest.raises(CellblockError, match="holds no jail yet"):
        status(tmp_path)
    with pytest.raises(CellblockError, match="does not exist"):
        status(tmp_path / "nothere")
    (tmp_path / "file").write_text("")
    with pytest.raises(CellblockError, match="is no directory"):
        status(tmp_path / "file")


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ("finished.json", "{"),
        ("finished.json", "{}"),
        ("finished.json", "[]"),
        ("undone-by", "x"),
    ],
)
def test_of_a_damaged_history_the_file_is_named_and_the_rest_is_told(
    upgraded: Jail, record: str, text: str
) -> None:
    upgraded.upgrade("old")
    path = upgraded.path / f".cellblock/history/0001/{record}"
    path.write_text(text)
    found = status(upgraded.path)
    (problem,) = found.problems
    assert str(path) in problem.message
    assert "mv " in problem.hint
    # The second one can be undone, and none before it.
    assert (found.undoable, len(found.kept)) == (1, 2)
    assert found.state is not None
    done = command(str(upgraded.path))
    assert done.returncode == 1
    assert str(path) in done.stdout
    assert "\nspace " in done.stdout


def test_a_damaged_newest_record_leaves_nothing_to_undo(upgraded: Jail) -> None:
    upgraded.upgrade("old")
    (upgraded.path / ".cellblock/history/0002/finished.json").write_text("{")
    found = status(upgraded.path)
    assert found.undoable == 0
    assert found.last_change is not None
    assert found.last_change.number == 1


@pytest.mark.parametrize("name", ["state.json", "manifest"])
def test_other_damaged_records_are_named_and_the_rest_is_told(upgraded: Jail, name: str) -> None:
    path = upgraded.path / ".cellblock" / name
    path.write_bytes(path.read_bytes()[:30])
    found = status(upgraded.path)
    (problem,) = found.problems
    assert str(path) in problem.message
    assert hints(found) != [""]
    assert found.undoable == 1
    assert found.space.bytes


def test_a_manifest_of_another_tree_is_told_from_its_own(upgraded: Jail, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Jail(tmp_path / "other")
    other.assemble(Deb("bar", "1"))
    shutil.copy(other.path / ".cellblock/manifest", upgraded.path / ".cellblock/manifest")
    (problem,) = status(upgraded.path).problems
    assert "is of another tree" in problem.message


def test_a_restore_that_was_interrupted_is_said(upgraded: Jail) -> None:
    (upgraded.path / ".cellblock/restore").mkdir()
    found = status(upgraded.path)
    (problem,) = found.problems
    assert "a restore of" in problem.message
    assert found.state is None
    assert len(found.kept) == 1


def test_a_writer_of_this_host_and_of_another(upgraded: Jail) -> None:
    record = upgraded.path / ".cellblock/writer"
    with Volume(upgraded.path).lock("jail upgrade x"):
        writer = status(upgraded.path).writer
        assert writer is not None
        assert (writer.what, writer.pid, writer.alive) == ("jail upgrade x", os.getpid(), True)
        assert writer.heard_s < 60
        fields = json.loads(record.read_text())
    dead = Holder(**{**fields, "start": 1})
    record.write_text(json.dumps(vars(dead)))
    writer = status(upgraded.path).writer
    assert writer is not None
    assert writer.alive is False
    record.write_text(json.dumps({**vars(dead), "boot": "another", "host": "node-7"}))
    assert "node-7" in command(str(upgraded.path)).stdout
    writer = status(upgraded.path).writer
    assert writer is not None
    assert writer.alive is None


def test_it_works_while_an_upgrade_runs(jail: Jail, short_lease: None) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    with stopped_writer("upgrade", READING, jail.path, str(jail.folder / "new")) as process:
        before = everything(jail.path)
        found = status(jail.path)
        assert found.writer is not None
        assert found.writer.what.startswith("jail upgrade")
        assert found.problems == ()
        assert everything(jail.path) == before
        wake(process)  # it may have lost its lease by now, which is as short as a test can wait for


def test_a_volume_that_is_being_filled_is_shown(jail: Jail, short_lease: None) -> None:
    jail.image("old", FOO)
    with stopped_writer("assemble", READING, jail.path, str(jail.folder / "old")) as process:
        found = status(jail.path)
        assert found.state is None
        assert found.problems == ()
        assert found.writer is not None
        assert found.writer.what.startswith("jail assemble")
        assert "none yet" in command(str(jail.path)).stdout
        wake(process)


def test_a_restore_that_runs_is_no_damage(upgraded: Jail) -> None:
    (upgraded.path / ".cellblock/restore").mkdir()
    with Volume(upgraded.path).lock("jail restore x"):
        found = status(upgraded.path)
    assert found.problems == ()
    assert found.writer is not None


def test_upgrades_all_the_while_are_no_damage(jail: Jail) -> None:
    """Records are replaced and removed under it: none of these moments may look like damage."""
    jail.assemble(FOO)
    jail.image("new", FOO2)
    ended = threading.Event()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(14):
                upgrade(str(jail.folder / ("new", "old")[number % 2]), jail.path, jail.events)
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    looked = 0
    while not ended.is_set():
        found = status(jail.path)
        assert [str(one) for one in found.problems] == []
        assert found.state is not None
        looked += 1
    thread.join()
    assert failed == []
    assert looked > 3
    assert len(status(jail.path).kept) == 5


@pytest.mark.parametrize("home", ["link", "file", "fifo", "absent"])
def test_what_users_made_of_home_is_not_followed(upgraded: Jail, home: str, tmp_path: Path) -> None:
    place = upgraded.root / "home"
    shutil.rmtree(place, ignore_errors=True)
    (tmp_path / "outside/secret").mkdir(parents=True)
    if home == "link":
        place.symlink_to(tmp_path / "outside")
    elif home == "file":
        place.write_text("")
    elif home == "fifo":
        os.mkfifo(place)
    assert status(upgraded.path).homes is None


def test_folders_of_home_are_listed_and_links_there_are_not(upgraded: Jail) -> None:
    (upgraded.root / "home/ada").mkdir(parents=True)
    (upgraded.root / "home/link").symlink_to("/etc")
    (upgraded.root / "home/\x1b[31m").mkdir()
    assert status(upgraded.path).homes == ("\x1b[31m", "ada")


def test_mounts_of_the_volume_and_of_the_tree_are_told_apart(upgraded: Jail, tmp_path: Path) -> None:
    """A container that has the volume is a node; one that has the tree alone is a step or a session."""
    whole, tree = tmp_path / "whole", tmp_path / "tree"
    whole.mkdir()
    tree.mkdir()

    def inside(source: Path, target: Path) -> subprocess.Popen[str]:
        script = 'mount --bind "$1" "$2" && echo ready && read x'
        argv = ["unshare", "--mount", "sh", "-c", script, "sh", str(source), str(target)]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    assert status(upgraded.path).mounts.nodes == ()
    with inside(upgraded.path, whole) as node, inside(upgraded.root, tree) as step:
        assert node.stdout is not None
        assert step.stdout is not None
        if (node.stdout.readline(), step.stdout.readline()) != ("ready\n", "ready\n"):
            pytest.skip("no mounts here")
        found = status(upgraded.path).mounts
        assert len(found.nodes) == 1
        assert found.steps == 1
        assert found.processes >= 1
        for each in (node, step):
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
    assert status(upgraded.path).mounts.steps == 0


@pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed")
def test_the_last_backup_is_noted(upgraded: Jail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESTIC_PASSWORD", "of the test")
    repository = find_repository(str(tmp_path / "repository"))
    made = backup(upgraded.path, repository, upgraded.events, BackupOptions("mine", init=True))
    found = status(upgraded.path).backup
    assert found is not None
    assert (found.snapshot, found.name, found.unread) == (made.snapshot, "mine", 0)
    assert found.repository == str(tmp_path / "repository")
    path = upgraded.path / ".cellblock/backup/last.json"
    path.write_text("{")
    (problem,) = status(upgraded.path).problems
    assert str(path) in problem.message


@pytest.fixture
def executes_for_ever(tmp_path: Path) -> Iterator[int]:
    """A process that keeps everybody waiting who follows a link in its folder of /proc."""
    if not Path("/dev/fuse").exists():
        pytest.skip("no FUSE here, by which a user keeps others waiting")
    sources = sorted(str(path) for path in (PROJECT / "tests/integration/escape/attacks").glob("*.c"))
    program = tmp_path / "attack"
    subprocess.run(["gcc", "-std=gnu11", "-static", "-o", str(program), *sources], check=True)
    process = subprocess.Popen(
        [str(program), "execute-for-ever"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "stays\n"
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_process_that_executes_for_ever_holds_nobody_up(upgraded: Jail, executes_for_ever: int) -> None:
    follow = [sys.executable, "-c", f"import os; os.readlink('/proc/{executes_for_ever}/ns/mnt')"]
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(follow, timeout=1, check=False)
    started = time.monotonic()
    done = command(str(upgraded.path))
    assert time.monotonic() - started < 20
    assert done.returncode == 0, done.stderr
    # Other tests may have such processes at the same time.
    assert re.search(r"and perhaps \d+ process(es)? of this machine that cannot be looked at", done.stdout)
    assert json.loads(command(str(upgraded.path), "--json").stdout)["readers"]["unseen"] >= 1
