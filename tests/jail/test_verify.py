# SPDX-License-Identifier: Apache-2.0
"""`jail verify` and `jail diff`: damage is found and repaired, users' changes are theirs and listed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from deb_trees import Deb, DebTree
from jail_trees import make_everything, snapshot
from typer.testing import CliRunner

from cellblock.cli.app import app
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.jail.assemble import assemble
from cellblock.jail.changes import changes, export, summarize
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import upgrade
from cellblock.jail.verify import VerifyResult, verify

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")

EVENTS = Events()


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A jail of everything a filesystem can hold, and two packages."""
    make_everything(tmp_path / "image")
    (tmp_path / "debs").mkdir()
    DebTree.make(tmp_path / "more", tmp_path / "debs", Deb("foo", "1"), Deb("bar", "1"))
    for name in ("tmp", "usr", "bin"):
        path = tmp_path / "more" / name
        target = tmp_path / "image" / name
        if path.is_symlink():
            target.unlink()
    shutil.copytree(tmp_path / "more", tmp_path / "image", symlinks=True, dirs_exist_ok=True)
    assemble(str(tmp_path / "image"), tmp_path / "volume", EVENTS)
    return tmp_path / "volume"


def tree(volume: Path) -> DebTree:
    return DebTree(volume / "root", volume.parent / "debs")


def damage(result: VerifyResult) -> dict[str, str]:
    return {one.entry.path.decode(errors="replace"): one.what for one in result.damaged}


@pytest.mark.parametrize("content", [False, True])
def test_a_new_volume_is_clean(volume: Path, content: bool) -> None:
    result = verify(volume, EVENTS, content=content)
    assert result.is_clean
    assert result.damaged == result.users == ()


def overwrite(path: Path) -> None:
    """Other content, and neither size nor time tell."""
    status = path.stat()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def lose(path: Path) -> None:
    """Take it away as a filesystem's check does: its directory's time stays."""
    status = path.parent.stat()
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.utime(path.parent, ns=(status.st_atime_ns, status.st_mtime_ns))


DAMAGES = {
    "usr/bin/big": (lose, "missing"),
    "usr/bin/foo": (lambda path: path.write_text("other"), "size, time"),
    "usr/bin/bar": (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"), "time, content"),
    "usr/bin/ping": (lambda path: os.removexattr(path, "security.capability"), "attributes"),
    "dangling": (lambda path: (path.unlink(), path.symlink_to("x")), "owner, time, target"),
    "fifo": (lambda path: (path.unlink(), path.mkdir()), "kind"),
    "z-hard-link": (lambda path: (path.unlink(), path.write_bytes(b"x")), "size, time, link"),
    "null": (lambda path: (path.unlink(), os.mknod(path, 0o020666, os.makedev(1, 5))), "time, device"),
}
CHOICES = {
    "usr/bin/big": (lambda path: path.unlink(), "removed"),
    "hard-link": (lambda path: path.unlink(), "removed"),
    "z-hard-link": (lambda path: path.unlink(), "removed"),
    "usr/bin/passwd": (lambda path: path.chmod(0o755), "mode"),
    "shared": (lambda path: os.chown(path, 5, 6), "owner"),
    "secret": (lambda path: os.setxattr(path, "user.x", b"y"), "attributes"),
    "private": (lambda path: path.chmod(0o777), "mode"),
    "usr/share/bar": (shutil.rmtree, "removed"),
}


@pytest.mark.parametrize("name", list(DAMAGES))
def test_each_kind_of_damage_is_found_and_repaired(volume: Path, name: str) -> None:
    before = snapshot(volume / "root")
    act, what = DAMAGES[name]
    act(volume / "root" / name)
    found = damage(verify(volume, EVENTS))
    assert found.pop(name).replace("size, ", "") == what.replace("size, ", "")
    assert set(found) <= {"hard-link", "usr/bin/big", "z-hard-link"}
    assert verify(volume, EVENTS, repair=True).repaired
    assert verify(volume, EVENTS, content=True).damaged == ()
    after = snapshot(volume / "root")
    for path, was in before.items():
        if not str(was[0]).startswith("0o4"):
            assert after[path][:6] == was[:6], path


@pytest.mark.parametrize("name", list(CHOICES))
def test_what_users_chose_is_named_and_undone_when_told(volume: Path, name: str) -> None:
    before = snapshot(volume / "root")
    act, what = CHOICES[name]
    act(volume / "root" / name)
    chosen = snapshot(volume / "root")
    overwrite(volume / "root/usr/bin/foo")  # a repair has something to do
    result = verify(volume, EVENTS, content=True, repair=True)
    assert result.repaired
    assert result.n_choices == result.n_users
    assert damage(result) == {"usr/bin/foo": "content"}
    found = {one.entry.path.decode(): one.what for one in result.users}
    assert found.pop(name) == what
    assert set(found) <= {"hard-link", "z-hard-link", "usr/share/bar/data", "usr/share/bar/only-1"}
    assert untimely(snapshot(volume / "root")) == untimely(chosen)
    command = ["jail", "verify", str(volume), "--log", "plain"]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0
    assert f"/{name}: {what}" in said.output
    assert f"`python3 build.py jail verify --repair --users {volume}` undoes these" in said.output
    assert CliRunner().invoke(app, [*command, "--repair", "--users"]).exit_code == 0
    assert untimely(snapshot(volume / "root")) == untimely(before)
    assert verify(volume, EVENTS, content=True).users == ()
    rollback(volume, EVENTS)
    assert untimely(snapshot(volume / "root")) == untimely(chosen)


def untimely(found: dict[bytes, tuple[object, ...]]) -> dict[bytes, tuple[object, ...]]:
    """Without the times of directories, which tell what was put into them."""
    return {path: (one[:3], one[5:]) if str(one[0]).startswith("0o4") else one for path, one in found.items()}


def test_what_has_one_cause_is_one_line_and_damage_comes_after_it(volume: Path) -> None:
    """As after apt-get install, which writes dpkg's records anew."""
    tree(volume).install(Deb("mine", "1"))
    tree(volume).dpkg("--remove", "bar")
    root = volume / "root"
    for number in range(50):
        with (root / f"var/lib/dpkg/info/{'foo.list' if number % 2 else 'foo.md5sums'}").open("a") as file:
            file.write("\n")
    shutil.rmtree(root / "usr/share/foo")
    overwrite(root / "usr/bin/foo")
    said = CliRunner().invoke(app, ["jail", "verify", str(volume), "--log", "plain", "--content"])
    lines = [line for line in said.output.splitlines() if line.startswith(("users", "damaged"))]
    assert lines == [
        "users     package bar: removed, 7 files",
        "users     /usr/share/foo: removed, and so 2 files below it",
        "users     what apt, dpkg and running systems write: 7 files below /var and /etc",
        "damaged   /usr/bin/foo: content",
    ]
    groups = {group.package: group for group in summarize(changes(volume)).groups}
    assert groups["dpkg"].changed >= 3
    assert (groups["foo"].changed, groups["foo"].removed) == (0, 3)
    assert groups["mine"].added >= 4


def test_users_goes_with_repair(volume: Path) -> None:
    said = CliRunner().invoke(app, ["jail", "verify", str(volume), "--users"])
    assert said.exit_code != 0
    assert "--users goes with --repair" in str(said.exception)


def test_what_is_lost_beside_what_was_repaired_is_no_choice_of_users(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair writes to the directory whose time tells the one from the other."""
    monkeypatch.setattr("cellblock.jail.verify.REPAIRED", 2)
    lose(volume / "root/usr/share/bar")
    lose(volume / "root/usr/share/foo")
    left = [verify(volume, EVENTS, repair=True).n_left for _ in range(3)]
    assert left == [4, 2, 0]
    assert verify(volume, EVENTS, content=True).is_clean
    assert verify(volume, EVENTS).users == ()


def test_silent_corruption_shows_only_in_the_content(volume: Path) -> None:
    for name in ("usr/bin/foo", "etc/passwd"):
        overwrite(volume / "root" / name)
    assert verify(volume, EVENTS).is_clean
    assert damage(verify(volume, EVENTS, content=True)) == {"usr/bin/foo": "content", "etc/passwd": "content"}
    result = verify(volume, EVENTS, content=True, repair=True)
    assert result.repaired
    assert verify(volume, EVENTS, content=True).is_clean
    rollback(volume, EVENTS)
    assert (volume / "root/usr/bin/foo").read_text().endswith("?"), "what a repair replaced is not lost"


def test_the_repair_that_is_advised_finds_what_only_the_content_shows(volume: Path) -> None:
    overwrite(volume / "root/usr/bin/foo")
    said = CliRunner().invoke(app, ["jail", "verify", str(volume), "--content", "--log", "plain"])
    assert said.exit_code == 1
    advised = re.search(r"  next: `python3 build\.py ([^`]*)` restores", said.output)
    assert advised is not None, said.output
    assert CliRunner().invoke(app, [*advised[1].split(), "--log", "plain"]).exit_code == 0
    assert verify(volume, EVENTS, content=True).is_clean


def test_what_users_changed_is_not_damage_and_survives_a_repair(volume: Path) -> None:
    tree(volume).install(Deb("foo", "2"), Deb("mine", "1"))
    tree(volume).dpkg("--remove", "bar")
    (volume / "root/etc/foo.conf").write_text("mine")
    (volume / "root/home/ada").mkdir()
    (volume / "root/usr/bin/ping").write_text("cut")
    before = (volume / "root/usr/bin/foo").read_text()
    assert set(damage(verify(volume, EVENTS))) == {"usr/bin/ping"}
    verify(volume, EVENTS, repair=True)
    assert verify(volume, EVENTS).is_clean
    assert (volume / "root/usr/bin/foo").read_text() == before
    assert (volume / "root/etc/foo.conf").read_text() == "mine"
    assert not (volume / "root/usr/bin/bar").exists()
    tree(volume).check()


def test_a_directory_that_users_put_elsewhere_is_one_change_and_stays(volume: Path) -> None:
    root = volume / "root"
    (root / "data").mkdir()
    for name in ("usr/share", "usr/bin"):  # of usr/bin/big there are other names
        (root / name).rename(root / "data" / name[4:])
        (root / name).symlink_to(f"../data/{name[4:]}")
    (root / "z-hard-link").unlink()
    (root / "z-hard-link").write_text("x")
    result = verify(volume, EVENTS)
    assert damage(result) == {"z-hard-link": "size, time, link"}
    users = {one.entry.path: one.now.target for one in result.users if one.now}
    assert users == {b"usr/share": b"../data/share", b"usr/bin": b"../data/bin"}
    assert result.behind == {b"usr/share": 6, b"usr/bin": 5}
    assert verify(volume, EVENTS, repair=True).repaired
    assert (root / "z-hard-link").stat().st_ino == (root / "hard-link").stat().st_ino
    assert (root / "usr/share").is_symlink()
    said = CliRunner().invoke(app, ["jail", "verify", str(volume), "--log", "plain"])
    assert said.exit_code == 0, said.output
    assert "/usr/share: a directory of the image, and a link to ../data/share here: the image's 6 files" in (
        said.output
    )
    assert "0 damaged, 2 changed by users" in said.output
    (root / "usr/share").unlink()
    assert verify(volume, EVENTS, repair=True).n_choices == 7
    assert verify(volume, EVENTS, repair=True, users=True).n_damaged == 7
    assert (root / "usr/share/foo/data").exists()
    assert (root / "usr/bin").is_symlink()


def test_after_an_upgrade_conflicts_are_no_damage(volume: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    shutil.copytree(tmp_path / "more", new, symlinks=True)
    tree(volume)
    (new / "usr/share/foo/data").write_text("new")
    (volume / "root/usr/share/foo/data").write_text("users'")
    upgrade(str(new), volume, EVENTS)
    assert verify(volume, EVENTS, content=True).is_clean
    lose(volume / "root/usr/share/bar")
    assert set(damage(verify(volume, EVENTS))) == {
        "usr/share/bar",
        "usr/share/bar/data",
        "usr/share/bar/only-1",
    }
    assert verify(volume, EVENTS, repair=True).repaired
    assert (volume / "root/usr/share/foo/data").read_text() == "users'"


def test_a_source_that_changed_repairs_nothing(volume: Path, tmp_path: Path) -> None:
    lose(volume / "root/usr/bin/foo")
    (tmp_path / "image/usr/bin/foo").write_text("newer")
    before = snapshot(volume / "root")
    with pytest.raises(CellblockError, match=r"was made from .* and that is now .*; nothing was repaired"):
        verify(volume, EVENTS, repair=True)
    assert snapshot(volume / "root") == before


def test_diff_names_package_owner_and_size(volume: Path) -> None:
    tree(volume).install(Deb("mine", "1"))
    work = volume / "root/home/ada"
    work.mkdir()
    (work / "work").write_bytes(bytes(1000))
    os.chown(work / "work", 100, 100)  # old, in passwd
    (volume / "root/usr/bin/foo").unlink()
    (volume / "root/etc/foo.conf").write_text("mine")
    found = {one.path.decode(): one for one in changes(volume)}
    assert found["home/ada/work"][:5] == ("added", b"home/ada/work", 1000, "old", "")
    assert found["usr/bin/mine"].package == "mine"
    assert (found["usr/bin/foo"].kind, found["usr/bin/foo"].package) == ("removed", "foo")
    assert (found["etc/foo.conf"].kind, found["etc/foo.conf"].package) == ("changed", "foo")
    assert "usr/bin/bar" not in found
    groups = {(group.package, group.owner): group for group in summarize(changes(volume)).groups}
    assert groups["", "old"].bytes == 1000
    assert groups["mine", "root"].added >= 4


def test_the_tar_of_a_diff_laid_over_the_image_is_the_users_tree(volume: Path, tmp_path: Path) -> None:
    tree(volume).install(Deb("mine", "1"))
    root = volume / "root"
    (root / "home/ada").mkdir()
    (root / "home/ada/w").write_text("w")
    os.setxattr(root / "home/ada/w", "user.note", b"\xff\x00")
    os.link(root / "home/ada/w", root / "home/ada/w2")
    (root / "home/ada/l").symlink_to("w")
    os.utime(root / "home/ada/w", ns=(0, -1_500_000_000))
    shutil.rmtree(root / "usr/share/bar")
    (root / "etc/foo.conf").write_text("mine")
    assert export(volume, tmp_path / "diff.tar")
    with tarfile.open(tmp_path / "diff.tar") as archive:
        names = set(archive.getnames())
        assert "usr/share/.wh.bar" in names
        assert not any(name.startswith("usr/share/.wh.bar/") for name in names)
        for member in archive:
            if ".wh." not in member.name:
                archive.extract(member, tmp_path / "image", numeric_owner=True, filter="fully_trusted")
    command = ["tar", "-C", str(tmp_path), "-xf", str(tmp_path / "diff.tar"), "home/ada/w"]
    subprocess.run(command, check=True)
    assert (tmp_path / "home/ada/w").stat().st_mtime_ns == -1_500_000_000
    shutil.rmtree(tmp_path / "image/usr/share/bar")
    expected, found = snapshot(root), snapshot(tmp_path / "image")
    assert set(found) == set(expected)
    for path in (b"home/ada/w", b"home/ada/w2", b"home/ada/l", b"etc/foo.conf", b"usr/bin/mine"):
        assert found[path][5] == expected[path][5]
        assert found[path][7:] == expected[path][7:]


def test_a_repair_of_metadata_alone_can_be_undone(volume: Path) -> None:
    (volume / "root/usr/bin/passwd").chmod(0o755)
    before = snapshot(volume / "root")
    assert damage(verify(volume, EVENTS, repair=True, users=True)) == {"usr/bin/passwd": "mode"}
    rollback(volume, EVENTS)
    assert snapshot(volume / "root") == before
