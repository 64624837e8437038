# SPDX-License-Identifier: Apache-2.0
"""`jail upgrade` and `rollback`: the image's changes arrive, the users' stay, packages fit together."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from deb_trees import Deb
from jail_trees import snapshot
from upgraded_jail import APP, BAR, FOO, FOO2, LIB, LIB2, Jail, kept_or_conflict, timeless

from cellblock.errors import CellblockError
from cellblock.jail.merge import change_plan
from cellblock.jail.upgrade import MovedTreeError, upgrade
from cellblock.jail.verify import verify
from cellblock.jail.volume import history
from cellblock.jail.volume.volume import Volume

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners and devices: needs root")


def test_untouched_it_becomes_the_new_image(jail: Jail) -> None:
    jail.assemble(FOO, BAR, LIB)
    new = jail.image("new", FOO2, LIB, APP)
    assert jail.upgrade().changed
    expected, found = snapshot(new.root), snapshot(jail.root)
    for path in (b"var/lib/dpkg/status", b"var/lib/dpkg/status-old"):  # the order of stanzas may differ
        del expected[path], found[path]
    assert timeless(found) == timeless(expected)
    assert jail.tree.versions() == new.versions() == {"foo": "2", "lib": "1", "app": "1"}
    jail.tree.check()


def test_the_same_image_is_nothing_to_do(jail: Jail) -> None:
    old = jail.assemble(FOO)
    jail.write("home/ada/work", "precious")
    before = snapshot(jail.root)
    assert not jail.upgrade("old").changed
    assert jail.plan("old").actions == ()
    assert snapshot(jail.root) == before
    assert old.versions() == {"foo": "1"}


def test_what_users_made_survives_and_both_ways(jail: Jail) -> None:
    jail.assemble(FOO, BAR)
    jail.image("new", FOO2)
    files = ("home/ada/work", "root/.bashrc", "opt/conda/bin/python", "usr/local/bin/tool", "srv/data/x")
    for name in files:
        jail.write(name, name)
    jail.write("usr/share/foo/users-own", "mine")
    jail.write("usr/share/bar/users-own", "mine")
    before = timeless(snapshot(jail.root))
    jail.upgrade()
    for name in (*files, "usr/share/foo/users-own", "usr/share/bar/users-own"):
        assert (jail.root / name).exists()
    assert not (jail.root / "usr/share/bar/data").exists()
    assert jail.rollback().changed
    assert timeless(snapshot(jail.root)) == before
    jail.tree.check()


def test_a_plan_says_what_upgrade_then_does(jail: Jail) -> None:
    jail.assemble(FOO, BAR)
    jail.image("new", FOO2, APP)
    before = snapshot(jail.path)
    plan = jail.plan()
    assert snapshot(jail.path) == before, "planning changes nothing"
    verdicts = {one.key: (one.verdict, one.before, one.after) for one in plan.packages}
    assert verdicts == {"foo": ("update", "1", "2"), "bar": ("remove", "1", ""), "app": ("add", "", "1")}
    names = {action.path.decode(): action.summary for action in plan.actions}
    assert names["usr/bin/foo"] == "update"
    assert names["usr/bin/bar"] == "remove"
    assert names["usr/bin/app"] == "add"
    assert jail.upgrade().plan.same_as(plan) == []


def test_conffiles_follow_dpkgs_rules(jail: Jail) -> None:
    names = ("same", "theirs", "both", "gone", "removed")
    jail.assemble(Deb("foo", "1", {f"etc/foo/{name}": "1" for name in names}))
    after = {"same": "2", "theirs": "1", "both": "2", "removed": "2"}
    jail.image("new", Deb("foo", "2", {f"etc/foo/{name}": text for name, text in after.items()}))
    for name in ("theirs", "both", "gone"):
        jail.write(f"etc/foo/{name}", "user")
    (jail.root / "etc/foo/removed").unlink()
    plan = jail.upgrade().plan
    assert jail.read("etc/foo/same") == "2"
    assert [jail.read(f"etc/foo/{name}") for name in ("theirs", "both", "gone")] == ["user"] * 3
    assert jail.read("etc/foo/both.dpkg-dist") == "2"
    assert not (jail.root / "etc/foo/removed").exists()
    assert kept_or_conflict(plan) == {
        "etc/foo/both": "conflict",
        "etc/foo/gone": "kept",
        "etc/foo/removed": "kept",
    }


def test_users_packages_and_what_they_need_stay(jail: Jail) -> None:
    jail.assemble(FOO, BAR, LIB)
    jail.image("new", FOO2, LIB2)
    jail.tree.install(Deb("mine", "1", fields={"Depends": "bar, lib (>= 1)"}))
    jail.upgrade()
    assert jail.tree.versions() == {"foo": "2", "lib": "2", "bar": "1", "mine": "1"}
    jail.tree.check()


TOOL = "usr/bin/tool"


def test_one_path_in_users_package_and_in_a_new_one_of_the_image_is_a_conflict(jail: Jail) -> None:
    """dpkg would refuse to unpack the second one."""
    jail.assemble(FOO)
    shared = {TOOL: "#!/bin/sh\nthe image's\n", "usr/share/same": "same", "etc/tool": "the image's"}
    new = jail.image("new", FOO2, Deb("app", "1", shared))
    (new.root / "usr/lib/odd").write_text("the image's, of no package")
    theirs = {TOOL: "users'", "usr/share/same": "same", "etc/tool": "users'", "usr/lib/odd": "users'"}
    jail.tree.install(Deb("mine", "1", theirs))
    found = {one.path.decode(): (one.kind, one.why) for one in jail.plan().findings}
    why = "users' package mine has it, and the image has another in "
    assert found == {
        "etc/tool": ("conflict", f"{why}its package app"),
        TOOL: ("conflict", f"{why}its package app"),
        "usr/lib/odd": ("conflict", f"{why}no package"),
    }
    jail.upgrade()
    assert jail.tree.versions() == {"foo": "2", "app": "1", "mine": "1"}
    assert jail.read(TOOL) == jail.read("etc/tool") == jail.read("usr/lib/odd") == "users'"
    assert jail.read(f"{TOOL}.cellblock-new") == "#!/bin/sh\nthe image's\n"
    assert jail.read("etc/tool.dpkg-dist") == "the image's"
    assert jail.read("usr/lib/odd.cellblock-new") == "the image's, of no package"
    assert verify(jail.path, jail.events, content=True).is_clean
    jail.rollback()
    assert jail.read(TOOL) == "users'"
    assert not (jail.root / f"{TOOL}.cellblock-new").exists()
    assert jail.tree.versions() == {"foo": "1", "mine": "1"}


def test_a_rollback_leaves_a_path_to_users_package_that_has_it_since(jail: Jail) -> None:
    jail.assemble(FOO, Deb("app", "1", {TOOL: "the image's"}))
    jail.image("new", FOO2)
    jail.upgrade()
    jail.tree.install(Deb("mine", "1", {TOOL: "users'"}))
    assert kept_or_conflict(jail.rollback().plan) == {TOOL: "conflict"}
    assert jail.tree.versions() == {"foo": "1", "app": "1", "mine": "1"}
    assert (jail.read(TOOL), jail.read(f"{TOOL}.cellblock-new")) == ("users'", "the image's")


def test_users_package_that_replaces_the_images_has_its_file(jail: Jail) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2, Deb("app", "1", {TOOL: "the image's"}))
    jail.tree.install(Deb("mine", "1", {TOOL: "users'"}, {"Replaces": "app (<< 2)"}))
    assert kept_or_conflict(jail.upgrade().plan) == {TOOL: "kept"}
    assert jail.read(TOOL) == "users'"
    assert not (jail.root / f"{TOOL}.cellblock-new").exists()


def test_a_package_that_users_pinned_by_dependency_is_held(jail: Jail) -> None:
    jail.assemble(FOO, LIB)
    jail.image("new", FOO2, LIB2)
    jail.tree.install(Deb("mine", "1", fields={"Depends": "lib (= 1)"}))
    plan = jail.upgrade().plan
    assert jail.tree.versions() == {"foo": "2", "lib": "1", "mine": "1"}
    assert [one.why for one in plan.packages if one.key == "lib"] == ["the users' mine needs it"]
    assert jail.read("usr/share/lib/data") == "1" * 100
    jail.tree.check()


def test_packages_that_cannot_fit_are_refused(jail: Jail) -> None:
    jail.assemble(FOO, LIB)
    jail.image("new", FOO2, LIB2, Deb("app", "1", fields={"Depends": "lib (>= 2)", "Conflicts": "mine"}))
    jail.tree.install(Deb("mine", "1", fields={"Depends": "lib (= 1)"}))
    before = snapshot(jail.path)
    with pytest.raises(CellblockError, match=r"do not fit together; nothing was changed:\n  app"):
        jail.plan()
    del before[b""]
    after = snapshot(jail.path)
    del after[b""]
    assert after == before


@pytest.mark.parametrize(("theirs", "result"), [("1.5", "2"), ("2", "2"), ("3", "3")])
def test_a_version_that_users_installed_stays_if_it_is_not_older(
    jail: Jail, theirs: str, result: str
) -> None:
    jail.assemble(FOO, LIB)
    jail.image("new", FOO2, LIB)
    jail.tree.install(Deb("foo", theirs))
    jail.upgrade()
    assert jail.tree.versions()["foo"] == result
    assert jail.read("usr/share/foo/data") == result * 100
    only = [path.name for path in (jail.root / "usr/share/foo").glob("only-*")]
    assert only == [f"only-{result}"], "no file of another version is left"
    assert jail.read("etc/foo.conf") == f"version = {result}\n"
    jail.tree.check()


def test_what_users_removed_or_held_stays_so(jail: Jail) -> None:
    jail.assemble(FOO, BAR, LIB)
    jail.image("new", FOO2, Deb("bar", "2"), LIB2)
    jail.tree.dpkg("--purge", "foo")
    jail.tree.dpkg("--remove", "bar")
    subprocess.run(
        ["dpkg", f"--root={jail.root}", "--set-selections"], input="lib hold\n", text=True, check=True
    )
    jail.upgrade()
    assert jail.tree.versions() == {"lib": "1"}
    assert not (jail.root / "usr/bin/foo").exists()
    jail.tree.check()


def test_what_users_removed_comes_back_when_it_is_needed(jail: Jail) -> None:
    jail.assemble(FOO, LIB)
    jail.image("new", Deb("foo", "2", fields={"Depends": "lib"}), LIB)
    jail.tree.dpkg("--purge", "lib")
    jail.upgrade()
    assert jail.tree.versions() == {"foo": "2", "lib": "1"}
    jail.tree.check()


def test_apply_refuses_when_the_tree_moved(jail: Jail, tmp_path: Path) -> None:
    jail.assemble(FOO, BAR)
    jail.image("new", FOO2)
    plan = jail.plan()
    change_plan.write(plan, tmp_path / "plan")
    expected = change_plan.read(tmp_path / "plan")
    assert expected.same_as(plan) == []
    times = (jail.root / "usr/share/foo/data").stat().st_mtime_ns
    jail.write("usr/share/foo/data", "hacked")
    before = timeless(snapshot(jail.root))
    with pytest.raises(MovedTreeError, match="/usr/share/foo/data: changed in the tree since"):
        upgrade(str(tmp_path / "new"), jail.path, jail.events, expected=expected)
    assert timeless(snapshot(jail.root)) == before
    jail.write("usr/share/foo/data", "1" * 100)
    os.utime(jail.root / "usr/share/foo/data", ns=(times, times))
    assert upgrade(str(tmp_path / "new"), jail.path, jail.events, expected=expected).changed


def test_a_rollback_keeps_what_users_did_since(jail: Jail) -> None:
    jail.assemble(FOO, BAR)
    jail.image("new", FOO2, LIB)
    jail.upgrade()
    jail.write("home/ada/work", "since")
    jail.write("etc/foo.conf", "since")
    jail.tree.install(Deb("mine", "1", fields={"Depends": "lib"}))
    result = jail.rollback()
    assert jail.tree.versions() == {"foo": "1", "bar": "1", "lib": "1", "mine": "1"}
    assert jail.read("home/ada/work") == "since"
    assert jail.read("etc/foo.conf") == "since"
    assert jail.read("etc/foo.conf.dpkg-dist") == "version = 1\n"
    assert kept_or_conflict(result.plan) == {"etc/foo.conf": "conflict"}
    jail.tree.check()


def test_history_and_rollback_over_several_upgrades(jail: Jail) -> None:
    jail.assemble(FOO)
    trees = [timeless(snapshot(jail.root))]
    for number in (2, 3):
        jail.image(f"new{number}", Deb("foo", str(number)), LIB)
        jail.upgrade(f"new{number}")
        trees.append(timeless(snapshot(jail.root)))
    for expected in reversed(trees[:-1]):
        jail.rollback()
        assert timeless(snapshot(jail.root)) == expected
    with pytest.raises(CellblockError, match="has no upgrade to undo"):
        jail.rollback()
    done = history.read(Volume(jail.path))
    assert [(one.operation, one.undone_by) for one in done] == [
        ("upgrade", 4),
        ("upgrade", 3),
        ("rollback", 0),
        ("rollback", 0),
    ]
    state = Volume(jail.path).state()
    assert state is not None
    assert "/old " in str(state.source)


def test_apt_at_work_in_the_jail_is_not_disturbed(jail: Jail) -> None:
    jail.assemble(FOO)
    jail.image("new", FOO2)
    script = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print('locked', flush=True); time.sleep(60)"
    )
    lock = jail.root / "var/lib/dpkg/lock-frontend"
    with subprocess.Popen(["python3", "-c", script, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(CellblockError, match="apt or dpkg is at work in"):
            jail.upgrade()
        holder.kill()
    assert jail.upgrade().changed
