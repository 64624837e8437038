# SPDX-License-Identifier: Apache-2.0
"""Users are root in the jail, and root outside works on what they wrote: nothing of theirs leads out of it.

Each test is an attack: paths that climb, links that are put in the place of what was just looked at, files
that never end. Moments are hit by a hook where the attacker would have to be lucky.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deb_trees import Deb
from upgraded_jail import FOO, FOO2, Jail, kept_or_conflict

from cellblock.errors import CellblockError
from cellblock.jail.apply.step import Step
from cellblock.jail.backup import listing, nosymfollow
from cellblock.jail.backup.reconcile import Reconciled, reconcile
from cellblock.jail.changes import changes, export
from cellblock.jail.source.listings import LayerListings
from cellblock.jail.tree import walk
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.entry import shown
from cellblock.jail.tree.removal import remove_tree
from tests.deep_tree import make_deep

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")

UP = "/../../outside"
"""From the jail's root: the volume is beside `outside`."""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "shadow").write_text("the host's")
    (folder / "shadow").chmod(0o600)
    (folder / "link").symlink_to("shadow")
    return folder


def seen(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in folder.iterdir():
        status = path.lstat()
        found[path.name] = (status.st_mode, status.st_uid, status.st_nlink)
    return found


@pytest.mark.parametrize("path", [b"..", b"a/../b", b"../outside/shadow", b"a/..", b".", b"a/.", b"a/x\0y"])
def test_no_path_climbs(tmp_path: Path, outside: Path, path: bytes) -> None:
    (tmp_path / "root/a").mkdir(parents=True)
    with TreeAccess(os.fsencode(tmp_path / "root")) as access:
        for function in (access.folder, access.at, access.status, access.open_handle):
            with pytest.raises(Blocked):
                function(path)
        with pytest.raises(Blocked):
            access.open(path)


def test_a_name_that_no_filesystem_has_is_not_there(tmp_path: Path) -> None:
    with TreeAccess(os.fsencode(tmp_path)) as access:
        assert access.status(b"x" * 300) is None
        assert access.status(b"x" * 300 + b"/y") is None


def test_a_diversion_leads_nowhere_else(jail: Jail, outside: Path) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    before = seen(outside)
    jail.write("var/lib/dpkg/diversions", f"/usr/share/foo/only-2\n{UP}/planted\n:\n")
    jail.upgrade()
    assert seen(outside) == before


def test_a_list_of_files_removes_nothing_else(jail: Jail, outside: Path) -> None:
    """The users' version of a package gives way to the image's; what it has and the image's has not, goes."""
    jail.assemble(FOO)
    jail.image("new", FOO2)
    jail.tree.install(Deb("foo", "1.5"))
    path = jail.root / "var/lib/dpkg/info/foo.list"
    path.write_text(path.read_text() + f"{UP}/link\n/usr{UP}/../link\n")
    before = seen(outside)
    plan = jail.upgrade().plan
    assert "foo 2" in jail.read("usr/bin/foo"), "the image's version came"
    assert seen(outside) == before
    assert not [action for action in plan.actions if b".." in action.path]


def test_a_top_folder_that_is_a_link_leads_nowhere_else(jail: Jail, outside: Path) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    jail.tree.install(Deb("foo", "1.5"))
    (jail.root / "evil").symlink_to(f"usr/..{UP}")
    path = jail.root / "var/lib/dpkg/info/foo.list"
    path.write_text(path.read_text() + "/evil/link\n")
    before = seen(outside)
    jail.upgrade()
    assert seen(outside) == before


def test_a_link_in_the_place_of_what_gets_a_new_mode(
    jail: Jail, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jail.assemble(FOO)
    shutil.copytree(jail.folder / "old", jail.folder / "new", symlinks=True)
    (jail.folder / "new/usr/share/foo/data").chmod(0o4777)
    chown = os.chown
    swapped = []

    def swapping(target: bytes, *arguments: int, **options: bool) -> None:
        chown(target, *arguments, **options)
        data = jail.root / "usr/share/foo/data"
        data.rename(data.with_name("aside"))
        data.symlink_to(outside / "shadow")
        swapped.append(target)

    monkeypatch.setattr(os, "chown", swapping)
    jail.upgrade()
    assert swapped
    assert stat.S_IMODE((outside / "shadow").stat().st_mode) == 0o600


def test_a_folder_in_the_place_of_what_is_removed_stays(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    gone = jail.root / "usr/share/foo/only-1"
    expected = Step._expect
    swapped = []

    def swapping(step: Step, status: os.stat_result) -> None:
        expected(step, status)
        if step.action.path == b"usr/share/foo/only-1" and step.action.verb == "remove":
            gone.unlink()
            gone.mkdir()
            (gone / "work").write_text("theirs")
            swapped.append(step)

    monkeypatch.setattr(Step, "_expect", swapping)
    skipped = {finding.path for finding in jail.upgrade().skipped}
    assert swapped
    assert (gone / "work").read_text() == "theirs"
    assert b"usr/share/foo/only-1" in skipped


def test_a_folder_that_users_remove_again_and_again_holds_no_upgrade_up(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2, Deb("app", "1", {"usr/share/app/deep/one": "1", "usr/share/app/deep/two": "2"}))
    put = Step.put

    def removing(step: Step) -> None:
        if step.action.path.startswith(b"usr/share/app/"):
            shutil.rmtree(jail.root / "usr/share/app", ignore_errors=True)
        put(step)

    monkeypatch.setattr(Step, "put", removing)
    skipped = {finding.path for finding in jail.upgrade().skipped}
    assert b"usr/share/app/deep/two" in skipped
    assert "foo 2" in jail.read("usr/bin/foo")
    monkeypatch.undo()
    jail.rollback()


def test_a_link_where_dpkgs_lock_was_is_said(jail: Jail, outside: Path) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    (jail.root / "var/lib/dpkg/lock").unlink(missing_ok=True)
    (jail.root / "var/lib/dpkg/lock").symlink_to(outside / "made")
    with pytest.raises(CellblockError, match="no file that can be locked"):
        jail.upgrade()
    assert "made" not in seen(outside)


def test_a_version_that_is_none_is_said(jail: Jail) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    jail.write(
        "var/lib/dpkg/status", jail.read("var/lib/dpkg/status").replace("Version: 1", "Version: 1_\x1b")
    )
    with pytest.raises(CellblockError, match="an invalid version"):
        jail.upgrade()


def test_a_file_of_a_terabyte_is_not_read(jail: Jail) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    with (jail.root / "usr/share/foo/data").open("wb") as file:
        file.truncate(1 << 40)
    plan = jail.upgrade().plan
    assert kept_or_conflict(plan)["usr/share/foo/data"] == "conflict"
    assert (jail.root / "usr/share/foo/data").stat().st_size == 1 << 40


def test_a_database_without_end_is_not_read(jail: Jail) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    with (jail.root / "var/lib/dpkg/diversions").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CellblockError, match=r"more than 64 MiB: /var/lib/dpkg/diversions"):
        jail.upgrade()


def test_a_walk_never_leaves_the_tree(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "root"
    for name in ("a/x", "b/x", "c"):
        (root / name).mkdir(parents=True)
    found = []
    for one in walk.walk(os.fsencode(root)):
        found.append(one.path)
        if one.path == b"b":
            (root / "b").rename(root / "was-b")
            (root / "b").symlink_to(outside)
    assert found == [b"a", b"a/x", b"b", b"c"]


def test_a_walk_goes_deeper_than_files_may_be_open(tmp_path: Path) -> None:
    root, path = tmp_path / "root", tmp_path / "root"
    for _ in range(200):
        path = path / "d"
        path.mkdir(parents=True)
        (path.parent / "e").touch()
    found = [one.path for one in walk.walk(os.fsencode(root))]
    assert len(found) == 400
    assert found == sorted(found, key=lambda one: one.replace(b"/", b"\0"))


def test_what_is_deeper_than_a_path_may_be_long_is_left_out_and_told(
    jail: Jail, tmp_path: Path, few_files: None
) -> None:
    jail.assemble(FOO)
    (jail.root / "home/deep").mkdir()
    make_deep(jail.root / "home/deep", 9000, files=True)
    jail.write("home/zoe/thesis", "hers")
    too_long = walk.TooLong()
    found = [one.path for one in changes(jail.path, too_long)]
    assert b"home/zoe/thesis" in found
    # A level has two letters.
    longest = max(len(os.fsencode(jail.root) + b"/" + one) for one in found)
    assert longest in (walk.LONGEST - 1, walk.LONGEST)
    assert too_long.count == 1
    assert too_long.first.startswith(b"home/deep/d/")
    assert "1 directories hold files of paths longer than 4095 bytes, below /home/deep/d/d" in str(too_long)
    assert export(jail.path, tmp_path / "diff.tar") == len(found)
    assert len(list(listing.read_tree(os.fsencode(jail.root)))) > len(found)


def test_a_deep_path_takes_no_more_files_than_may_be_open(tmp_path: Path, few_files: None) -> None:
    (tmp_path / "root").mkdir()
    make_deep(tmp_path / "root", 1500, files=True)
    with TreeAccess(os.fsencode(tmp_path / "root")) as access:
        for depth in (1400, 64, 65, 66, 1, 1500):
            path = b"/".join([b"d"] * depth)
            expected = (tmp_path / "root" / os.fsdecode(path)).stat()
            for _ in range(2):
                found = os.fstat(access.folder(path))
                assert (found.st_dev, found.st_ino) == (expected.st_dev, expected.st_ino), depth
        assert access.status(b"/".join([b"d"] * 1400 + [b"z"]))
        with pytest.raises(FileNotFoundError):
            access.folder(b"/".join([b"d"] * 1400 + [b"none", b"d"]))
        assert access.status(b"d/d/z")


@pytest.fixture
def few_files(tmp_path: Path) -> Iterator[None]:
    """A process may have so many open at once, as under many service managers."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    # pytest removes nothing that is so deep.
    for folder in tmp_path.iterdir():
        if folder.is_dir():
            remove_tree(folder)


def test_a_diff_goes_on_when_a_folder_becomes_a_link(jail: Jail, outside: Path, tmp_path: Path) -> None:
    jail.assemble(FOO)
    jail.write("home/ada/shadow", "hers")
    found = []
    for one in changes(jail.path):
        found.append(one.path)
        if one.path == b"home/ada":
            (jail.root / "home/ada").rename(jail.root / "home/was")
            (jail.root / "home/ada").symlink_to(outside)
    assert b"home/ada" in found
    assert b"home/ada/shadow" not in found
    assert export(jail.path, tmp_path / "diff.tar") > 0


class Stored:
    """A home as it was listed, and as a snapshot of a moment later has it."""

    def __init__(self, folder: Path) -> None:
        self.root, self.list = folder / "root", folder / "list"
        (self.root / "home/dir").mkdir(parents=True)
        (self.root / "home/dir/shadow").write_text("hers")
        os.link(self.root / "home/dir/shadow", self.root / "home/other")

    def mended(self, change: Callable[[], None]) -> Reconciled:
        listing.write(self.list, listing.read_tree(os.fsencode(self.root)))
        status = (self.root / "home/other").stat()
        change()
        os.utime(self.root / "home/other", ns=(status.st_mtime_ns, status.st_mtime_ns))
        return reconcile(self.list, self.root, lambda node: None)


def test_a_restore_makes_no_link_to_what_is_outside(tmp_path: Path, outside: Path) -> None:
    stored = Stored(tmp_path)

    def change() -> None:
        shutil.rmtree(stored.root / "home/dir")
        (stored.root / "home/dir").symlink_to(outside)
        (outside / "shadow").write_text("hers")

    stored.mended(change)
    assert (outside / "shadow").stat().st_nlink == 1
    assert (stored.root / "home/other").read_text() == "hers"


def test_a_restore_keeps_what_was_another_name_and_no_longer_is(tmp_path: Path) -> None:
    stored = Stored(tmp_path)

    def change() -> None:
        (stored.root / "home/dir/shadow").unlink()
        (stored.root / "home/dir/shadow").write_text("newer")

    result = stored.mended(change)
    assert (stored.root / "home/other").read_text() == "hers"
    assert result.losses == ()


def test_a_name_tells_a_terminal_nothing() -> None:
    assert shown(b"home/\x1b]0;x\x07\n\xff/\xc3\xa4 b") == "/home/\\x1b]0;x\\x07\\n\\xff/\xe4 b"


def test_what_stores_files_follows_no_link(tmp_path: Path, outside: Path) -> None:
    """restic opens by path: a directory that becomes a link after restic's look leads it anywhere."""
    folder = tmp_path / "volume"
    (folder / "root").mkdir(parents=True)
    (folder / "root/file").write_text("hers")
    (folder / "root/lure").symlink_to(outside)
    command = [sys.executable, "-I", nosymfollow.__file__, str(folder), "sh", "-c"]
    done = subprocess.run(
        [*command, "cat root/file; readlink root/lure; cat root/lure/shadow"], capture_output=True, text=True
    )
    if nosymfollow.MESSAGE in done.stdout:
        pytest.skip("this machine cannot mount without links")
    assert done.stdout == f"hers{outside}\n"
    assert "Too many levels of symbolic links" in done.stderr
    assert str(folder) not in Path("/proc/self/mountinfo").read_text(), "the mount is that program's alone"


def test_a_listing_that_is_cut_off_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "listing").write_bytes(b"cellblock-layer-listing 1\n" + b"f" * 100)
    listings = LayerListings(tmp_path)
    assert listings.holds("listing", {b"x" * 32})
    (tmp_path / "listing").write_bytes(b"another form" * 10)
    assert listings.holds("listing", {b"x" * 32})
    assert listings.holds("absent", {b"x" * 32})
