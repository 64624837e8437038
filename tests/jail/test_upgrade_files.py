# SPDX-License-Identifier: Apache-2.0
"""`jail upgrade` of files of every kind: owners, modes, links, devices, diversions, accounts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from jail_trees import snapshot
from upgraded_jail import APP, FOO, FOO2, LIB, Jail, kept_or_conflict

from cellblock.jail.assemble import assemble
from cellblock.jail.verify import verify

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")


def test_a_mode_that_users_set_stays_with_new_content(jail: Jail) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    (jail.root / "usr/share/foo/data").chmod(0o600)
    os.chown(jail.root / "usr/bin/foo", 7, 8)
    jail.upgrade()
    assert (jail.root / "usr/share/foo/data").stat().st_mode & 0o777 == 0o600
    assert "foo 2" in jail.read("usr/bin/foo")
    assert (jail.root / "usr/bin/foo").stat().st_uid == 7


def test_a_changed_file_that_is_no_conffile_gets_the_images_beside_it(jail: Jail) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    jail.write("usr/share/foo/data", "hacked")
    plan = jail.upgrade().plan
    assert jail.read("usr/share/foo/data") == "hacked"
    assert jail.read("usr/share/foo/data.cellblock-new") == "2" * 100
    assert kept_or_conflict(plan) == {"usr/share/foo/data": "conflict"}


def test_accounts_are_merged_by_entry(jail: Jail) -> None:
    jail.assemble(FOO)
    new = jail.image("new", FOO2)
    with (new.root / "etc/passwd").open("a") as file:
        file.write("svc:x:101:101::/var/svc:/bin/false\n")
    with (new.root / "etc/group").open("a") as file:
        file.write("svc:x:101:\n")
    (new.root / "etc/shadow").write_text("root:*:19000:0:99999:7:::\nold:!:19000::::::\nsvc:!:19500::::::\n")
    (new.root / "var/svc").mkdir()
    os.chown(new.root / "var/svc", 101, 101)
    jail.write(
        "etc/passwd", jail.read("etc/passwd") + "ada:x:1000:1000::/home/ada:/bin/sh\nown:x:101:101::/:\n"
    )
    jail.write("etc/group", "root:x:0:\nold:x:100:\nvideo:x:44:ada\nada:x:1000:\nown:x:101:\n")
    jail.write("etc/shadow", jail.read("etc/shadow").replace("root:*", "root:$6$x") + "ada:$6$y:1::::::\n")
    jail.upgrade()
    users = {line.split(":")[0]: line.split(":")[2] for line in jail.read("etc/passwd").splitlines()}
    assert users["ada"] == "1000"
    assert users["own"] == "101"
    assert users["svc"] not in ("101", "1000"), "its number was taken"
    status = (jail.root / "var/svc").stat()
    assert str(status.st_uid) == users["svc"]
    assert f"svc:x:{status.st_gid}:" in jail.read("etc/group")
    assert "video:x:44:ada" in jail.read("etc/group")
    assert jail.read("etc/shadow").splitlines() == [
        "root:$6$x:19000:0:99999:7:::",
        "old:!:19000::::::",
        "ada:$6$y:1::::::",
        "svc:!:19500::::::",
    ]
    again = jail.image("again", FOO2, APP)
    shutil.copytree(new.root / "etc", again.root / "etc", dirs_exist_ok=True)
    (again.root / "var/svc").mkdir()
    os.chown(again.root / "var/svc", 101, 101)
    (again.root / "var/svc/f").touch()
    os.chown(again.root / "var/svc/f", 101, 101)
    jail.upgrade("again")
    assert str((jail.root / "var/svc/f").stat().st_uid) == users["svc"]


def test_hard_links_and_special_files_come_through(jail: Jail) -> None:
    jail.assemble(FOO)
    new = jail.image("new", FOO2)
    (new.root / "usr/bin/one").write_text("linked")
    for name in ("two", "three"):
        os.link(new.root / "usr/bin/one", new.root / "usr/bin" / name)
    os.mkfifo(new.root / "var/pipe")
    os.mknod(new.root / "var/null", 0o020666, os.makedev(1, 3))
    (new.root / "usr/lib/link").symlink_to("nowhere")
    os.setxattr(new.root / "usr/bin/one", "user.note", b"x")
    jail.upgrade()
    expected, found = snapshot(new.root), snapshot(jail.root)
    for path in (b"usr/bin/one", b"usr/bin/three", b"var/pipe", b"var/null", b"usr/lib/link"):
        assert found[path] == expected[path]
    (new.root / "usr/bin/one").write_text("other")
    jail.upgrade()
    expected, found = snapshot(new.root), snapshot(jail.root)
    for name in (b"one", b"two", b"three"):
        assert found[b"usr/bin/" + name] == expected[b"usr/bin/" + name]


def test_nothing_outside_is_written_through_users_links(jail: Jail, tmp_path: Path) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.move(jail.root / "usr/share/foo", outside / "foo")
    (jail.root / "usr/share/foo").symlink_to(outside / "foo")
    before = snapshot(outside)
    plan = jail.upgrade().plan
    assert snapshot(outside) == before
    assert kept_or_conflict(plan)["usr/share/foo"] == "conflict"


def test_diverted_files_follow_their_diversion(jail: Jail) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    divert = ["dpkg-divert", "--local", "--rename", "--divert", "/usr/bin/foo.real", "/usr/bin/foo"]
    subprocess.run(
        [divert[0], "--root", str(jail.root), *divert[1:]], check=True, capture_output=True, text=True
    )
    jail.write("usr/bin/foo", "#!/bin/sh\nwrapper\n")
    jail.upgrade()
    assert "wrapper" in jail.read("usr/bin/foo")
    assert "foo 2" in jail.read("usr/bin/foo.real")


def test_an_account_that_the_tree_has_keeps_its_number(jail: Jail) -> None:
    """Two builds of an image may number their system users otherwise; users have files of these, too."""
    groups = {
        "old": {"_ssh": 101, "rdma": 102},
        "new": {"_ssh": 102, "rdma": 101},
        "last": {"_ssh": 998, "rdma": 997},
    }
    image = jail.assemble(FOO)
    for name, numbers in groups.items():
        root = image.root if name == "old" else jail.image(name, FOO, LIB).root
        lines = "".join(f"{group}:x:{number}:\n" for group, number in numbers.items())
        (root / "etc/group").write_text(f"root:x:0:\n{lines}")
        for group, number in numbers.items():
            (root / "usr/bin" / group).write_text(name)
            os.chown(root / "usr/bin" / group, 0, number)
    shutil.rmtree(jail.path)
    assemble(str(image.root), jail.path, jail.events)
    jail.write("etc/group", jail.read("etc/group") + "ada:x:1000:\n")
    jail.write("home/ada/key", "precious")
    os.chown(jail.root / "home/ada/key", 0, 101)
    for name in ("new", "last"):
        jail.upgrade(name)
        assert jail.read("etc/group") == "root:x:0:\n_ssh:x:101:\nrdma:x:102:\nada:x:1000:\n"
        owners = {group: (jail.root / "usr/bin" / group).stat().st_gid for group in groups["old"]}
        assert owners == groups["old"]
        assert jail.read("usr/bin/_ssh") == name
        assert verify(jail.path, jail.events).damaged == ()
    assert (jail.root / "home/ada/key").stat().st_gid == 101


def make(root: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    os.utime(path, (1, 1))


def test_a_rollback_puts_what_another_file_was_too_beside_users_own(jail: Jail) -> None:
    """`same` only changed its mode, so nothing of it is kept; `root` is setuid, and no name of the copy."""
    old, new = jail.image("old", FOO), jail.image("new", FOO)
    for tree, content, mode in ((old.root, "old", 0o644), (new.root, "new", 0o600)):
        make(tree, "usr/share/mine", content)
        make(tree, "usr/share/root", content, 0o4755)
        make(tree, "usr/share/same", "old", mode)
    assemble(str(old.root), jail.path, jail.events)
    jail.upgrade()
    jail.write("usr/share/mine", "of users")
    assert kept_or_conflict(jail.rollback().plan) == {"usr/share/mine": "conflict"}
    beside, root = ((jail.root / "usr/share" / name).stat() for name in ("mine.cellblock-new", "root"))
    assert jail.read("usr/share/mine.cellblock-new") == jail.read("usr/share/root") == "old"
    assert beside.st_ino != root.st_ino
    assert (beside.st_mode & 0o7777, root.st_mode & 0o7777) == (0o644, 0o4755)
    assert (jail.root / "usr/share/same").stat().st_mode & 0o7777 == 0o644


@pytest.mark.parametrize("link", [False, True])
def test_an_image_with_packages_comes_after_one_without(jail: Jail, link: bool) -> None:
    make(jail.folder / "old", "etc/os-release", "ID=small\n")
    if link:  # a directory in the new one
        (jail.folder / "old/var/lib").mkdir(parents=True)
        (jail.folder / "old/var/lib/dpkg").symlink_to("/nowhere")
    jail.image("new", FOO)
    assemble(str(jail.folder / "old"), jail.path, jail.events)
    jail.upgrade()
    assert jail.tree.versions() == {"foo": "1"}
    jail.rollback()
    assert os.path.lexists(jail.root / "var/lib/dpkg") == link


def test_a_database_of_accounts_may_become_a_link(jail: Jail) -> None:
    jail.assemble(FOO)
    new = jail.image("new", FOO2)
    (new.root / "etc/subuid").unlink()
    (new.root / "etc/subuid").symlink_to("../data/subuid")
    jail.upgrade()
    assert (jail.root / "etc/subuid").readlink() == Path("../data/subuid")
    jail.rollback()
    assert jail.read("etc/subuid") == ""
