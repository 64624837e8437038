# SPDX-License-Identifier: Apache-2.0
"""What is looked at is what is then read, linked and changed; and what users can make a look fail with."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from exchanging import SECRET, Outside
from upgraded_jail import BAR, FOO, FOO2, Jail, kept_or_conflict

from cellblock.errors import CellblockError
from cellblock.jail.apply import step
from cellblock.jail.apply.step import Step
from cellblock.jail.backup import nosymfollow, one_path
from cellblock.jail.merge import planner
from cellblock.jail.tree.access import TreeAccess
from cellblock.jail.tree.elf_needs import needs
from cellblock.jail.tree.file_handle import FileHandle, UnreadableError
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.verify import verify
from cellblock.jail.volume import apt_lock, history
from cellblock.jail.volume.history import Done
from cellblock.jail.volume.volume import Volume

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")

DATA = "usr/share/foo/data"


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "outside")


@pytest.fixture
def upgradable(jail: Jail) -> Jail:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    return jail


def before(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, act: Callable[[], None]) -> list[str]:
    """Have `act` done once, before the function is called."""
    function, done = getattr(owner, name), list[str]()

    def call(*arguments: object, **options: object) -> object:
        if not done:
            done.append(name)
            act()
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, call)
    return done


def replaced_by_link(jail: Jail, name: str, target: Path) -> Callable[[], None]:
    def act() -> None:
        (jail.root / name).rename(jail.root / "home/was")
        (jail.root / name).symlink_to(target)

    return act


def done_of(jail: Jail) -> Done:
    found = history.last_undoable(Volume(jail.path))
    assert found is not None
    return found


def test_what_becomes_a_link_before_it_is_kept(
    upgradable: Jail, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by attack: the link came into kept/, and the rollback gave the host's file the old one's mode."""
    link = FileHandle.link
    swapped = []

    def swapping(handle: FileHandle, folder: int, name: bytes) -> None:
        if not swapped and handle.status.st_ino == (upgradable.root / DATA).lstat().st_ino:
            replaced_by_link(upgradable, DATA, outside.folder / "shadow")()
            swapped.append(name)
        link(handle, folder, name)

    monkeypatch.setattr(FileHandle, "link", swapping)
    skipped = {one.path.decode() for one in upgradable.upgrade().skipped}
    assert swapped
    assert skipped == {DATA}
    assert os.fsdecode(swapped[0]) not in {
        path.name for path in (done_of(upgradable).folder / "kept").iterdir()
    }
    (upgradable.root / DATA).unlink()
    upgradable.write(DATA, "2" * 100)  # the image's content
    assert kept_or_conflict(upgradable.rollback().plan)[DATA] == "conflict"
    assert upgradable.read("usr/bin/foo").endswith("foo 1\n")
    outside.check(upgradable.path)


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_an_older_cellblock_kept_is_looked_at(upgradable: Jail, outside: Outside, kind: str) -> None:
    upgradable.upgrade()
    kept = done_of(upgradable).folder / "kept"
    (one,) = (path for path in kept.iterdir() if path.read_text() == "1" * 100)
    one.unlink()
    if kind == "link":
        one.symlink_to(outside.folder / "shadow")
    elif kind == "fifo":
        os.mkfifo(one)
    else:
        one.mkdir()
    assert kept_or_conflict(upgradable.rollback().plan)[DATA] == "conflict"
    assert upgradable.read(DATA) == "2" * 100
    assert upgradable.read("usr/bin/foo").endswith("foo 1\n")
    outside.check(upgradable.path)


def test_a_database_folder_that_becomes_a_link_while_it_is_planned(
    upgradable: Jail, outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgradable.tree.install(BAR)  # the users': dpkg's status is merged
    act = replaced_by_link(upgradable, "var/lib/dpkg", outside.folder)
    put, done = planner._Planner._put_merged, list[bytes]()

    def swapping(self: planner._Planner, path: bytes, *arguments: bytes) -> None:
        if not done:
            act()
            self.access.forget()
        done.append(path)
        put(self, path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(planner._Planner, "_put_merged", swapping)
    plan = upgradable.upgrade().plan
    assert b"var/lib/dpkg/status" in done
    assert (upgradable.root / "var/lib/dpkg").is_symlink()
    assert kept_or_conflict(plan)["var/lib/dpkg"] == "conflict"
    outside.check(upgradable.path)


@pytest.mark.parametrize("name", ["var/lib/dpkg/status", "etc/passwd"])
def test_a_database_that_is_no_file_is_listed(upgradable: Jail, name: str) -> None:
    (upgradable.root / name).unlink()
    os.mkfifo(upgradable.root / name)
    assert kept_or_conflict(upgradable.upgrade().plan)[name] == "conflict"


def test_an_account_that_is_made_while_it_is_planned_stays(
    upgradable: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The merge was of what had been read: put there, it undid what was written since."""
    new = upgradable.folder / "new/etc/passwd"
    new.write_text(new.read_text() + "svc:x:101:101::/var/svc:/bin/false\n")
    upgradable.write("etc/passwd", upgradable.read("etc/passwd") + "ada:x:1000:1000::/:/bin/sh\n")

    def useradd() -> None:
        upgradable.write("etc/passwd", upgradable.read("etc/passwd") + "eve:x:1001:1001::/:/bin/sh\n")

    done = before(monkeypatch, planner._Planner, "_put_merged", useradd)
    upgradable.upgrade()
    assert done
    names = [line.split(":")[0] for line in upgradable.read("etc/passwd").splitlines()]
    assert {"ada", "eve", "svc"} <= set(names)


def test_content_of_another_is_given_no_rights(upgradable: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is removed gives its inode's number to the next one that is made, and a time can be set."""
    path = upgradable.root / DATA
    image = upgradable.folder / "new" / DATA
    image.write_text("1" * 100)
    os.utime(image, ns=(path.stat().st_mtime_ns,) * 2)
    image.chmod(0o4755)
    status = path.stat()

    def writing() -> None:
        path.write_text("e" * 100)
        os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))

    done = before(monkeypatch, Step, "metadata", writing)
    skipped = {one.path.decode() for one in upgradable.upgrade().skipped}
    assert done
    assert DATA in skipped
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_file_with_as_many_names_as_it_can_have_holds_no_upgrade_up(
    upgradable: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))

    monkeypatch.setattr(FileHandle, "link", full)
    skipped = {one.path.decode() for one in upgradable.upgrade().skipped}
    assert DATA in skipped
    monkeypatch.undo()
    upgradable.rollback()


def test_a_file_that_is_exchanged_twice_is_not_lost(
    upgradable: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, exchange = upgradable.root / DATA, step.exchange
    calls = []

    def exchanging(*arguments: int) -> bool:
        calls.append(arguments)
        if len(calls) <= 2:
            path.unlink()
            path.write_text(f"theirs {len(calls)}")
        return exchange(*arguments)

    kept = Step._expect_kept

    def only_data(one: Step, handle: FileHandle) -> None:
        kept(one, handle)
        monkeypatch.setattr(step, "exchange", exchanging if one.action.path == DATA.encode() else exchange)

    monkeypatch.setattr(Step, "_expect_kept", only_data)
    (skipped,) = upgradable.upgrade().skipped
    assert len(calls) == 2
    assert path.read_text() == "theirs 1"
    (aside,) = (done_of(upgradable).folder / "theirs").iterdir()
    assert aside.read_text() == "theirs 2"
    assert f"theirs/{aside.name}" in skipped.why


def test_a_device_is_not_opened_to_be_locked(tmp_path: Path) -> None:
    folder = tmp_path / "var/lib/dpkg"
    folder.mkdir(parents=True)
    os.mknod(folder / "lock", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with pytest.raises(CellblockError, match="no file that can be locked"), apt_lock.apt_locked(tmp_path):
        pass


def test_a_look_is_of_one_file(tmp_path: Path, outside: Outside) -> None:
    (tmp_path / "file").write_text("hers")
    with TreeAccess(os.fsencode(tmp_path)) as access:
        handle = access.open_handle(b"file")
        assert handle is not None
        (tmp_path / "file").unlink()
        (tmp_path / "file").symlink_to(outside.folder / "shadow")
        with handle:
            assert handle.digest() == hashlib.sha256(b"hers").hexdigest()
            Path(os.fsdecode(handle.magic)).chmod(0o4777)
            with os.fdopen(handle.open(), "rb") as file:
                assert file.read() == b"hers"
        link = access.open_handle(b"file")
        assert link is not None
        with link, pytest.raises(UnreadableError):
            link.open()
    assert (outside.folder / "shadow").read_text() == SECRET
    outside.check(tmp_path / "nothing")


def test_a_file_that_a_program_holds_a_lease_on_is_a_conflict(upgradable: Jail) -> None:
    with (upgradable.root / DATA).open("r+b") as file:
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel says so that somebody wants to read it
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        found = kept_or_conflict(upgradable.upgrade().plan)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    assert found[DATA] == "conflict"
    verify(upgradable.path, upgradable.events, content=True)


def test_attributes_without_end_are_a_conflict(upgradable: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on xfs; ext4 has room for 4 KiB of them."""
    names = os.listxattr

    def listed(path: bytes, **options: bool) -> list[str]:
        if Path(os.fsdecode(path)).resolve() == upgradable.root / DATA:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        return names(path, **options)

    monkeypatch.setattr(os, "listxattr", listed)
    found = kept_or_conflict(upgradable.upgrade().plan)
    assert found[DATA] == "conflict"


def test_needed_libraries_are_bounded(tmp_path: Path) -> None:
    """65,000 names that are each the rest of one text of a megabyte would be 34 GB."""
    text = bytearray(Path("/bin/true").read_bytes()[:64])
    strings, entries = b"x" * ((1 << 20) - 1) + b"\0", 60_000
    table, where = 64, 64 + 2 * 56
    dynamic = b"".join((1).to_bytes(8, "little") + one.to_bytes(8, "little") for one in range(entries))
    dynamic += (5).to_bytes(8, "little") + (1 << 21).to_bytes(8, "little")
    dynamic += (10).to_bytes(8, "little") + len(strings).to_bytes(8, "little") + bytes(16)
    text[32:40], text[54:56], text[56:58] = (
        table.to_bytes(8, "little"),
        (56).to_bytes(2, "little"),
        b"\2\0",
    )

    def segment(kind: int, offset: int, address: int, size: int) -> bytes:
        head = kind.to_bytes(4, "little") + bytes(4)
        return head + b"".join(one.to_bytes(8, "little") for one in (offset, address, 0, size, size, 0))

    at = where + len(dynamic)
    (tmp_path / "elf").write_bytes(
        bytes(text)
        + segment(2, where, 0, len(dynamic))
        + segment(1, at, 1 << 21, len(strings))
        + dynamic
        + strings
    )
    with (tmp_path / "elf").open("rb") as file:
        assert needs(file.fileno()) == []


def test_what_lies_deep_is_removed(tmp_path: Path, outside: Outside) -> None:
    """Recursion would end at a thousand levels, with a traceback."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link").symlink_to(outside.folder)
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.mkfifo("fifo", dir_fd=inner)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    remove_tree(folder)
    assert not folder.exists()
    outside.check(tmp_path / "nothing")


def test_a_restored_path_takes_nothing_that_was_made_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "restored").mkdir()
    (tmp_path / "restored/work").write_text("old")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/work").write_text("newer")
    folders = [os.open(tmp_path / name, os.O_RDONLY) for name in ("restored", "home")]
    ends = (folders[0], b"work"), (folders[1], b"work")
    with pytest.raises(CellblockError, match="was made there meanwhile"):
        one_path._put(*ends, None)
    assert (tmp_path / "home/work").read_text() == "newer"
    assert one_path._put(*ends, tmp_path / "kept")
    assert (tmp_path / "home/work").read_text() == "old"
    assert (tmp_path / "kept/work").read_text() == "newer"
    for folder in folders:
        os.close(folder)


def test_a_fifo_among_the_loaders_files_is_not_waited_for(upgradable: Jail) -> None:
    upgradable.write("etc/ld.so.cache", "theirs")
    (upgradable.folder / "new/etc/ld.so.cache").write_text("the image's")
    (upgradable.root / "etc/ld.so.conf.d").mkdir()
    os.mkfifo(upgradable.root / "etc/ld.so.conf.d/waits.conf")
    assert upgradable.upgrade().plan.regenerate_cache
    assert upgradable.read("etc/ld.so.cache") == "theirs"


WAITING = """
import os, signal, sys
signal.signal(signal.SIGURG, lambda *_: None)  # as every Go program: an open is begun again
with open(sys.argv[1]) as file:
    print("read", file.read())
"""


@pytest.mark.parametrize("exchanged", [False, True])
def test_what_stores_files_waits_for_no_fifo(tmp_path: Path, exchanged: bool) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("hers")
    command = [sys.executable, "-I", nosymfollow.__file__, str(tmp_path)]
    command += [sys.executable, "-c", WAITING, "fifo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        if exchanged:
            wait_for_fifo(running.pid)
            (tmp_path / "file").rename(tmp_path / "fifo")
        output, _ = running.communicate(timeout=60)
    assert output.splitlines()[-1] == ("read hers" if exchanged else "read ")
    assert running.returncode == 0


def wait_for_fifo(process: int) -> None:
    path = Path(f"/proc/{process}/wchan")
    while path.read_text() not in ("wait_for_partner", "fifo_open"):
        time.sleep(0.01)
