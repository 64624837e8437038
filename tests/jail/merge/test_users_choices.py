# SPDX-License-Identifier: Apache-2.0
"""What users told dpkg and the filesystem to do with files of ours holds through upgrades and repairs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from upgraded_jail import BAR, FOO, FOO2, Deb, Jail, kept_or_conflict

from cellblock.errors import CellblockError
from cellblock.jail.assemble import assemble
from cellblock.jail.merge.alternatives import parse, without_images
from cellblock.jail.verify import verify

GROUP = "var/lib/dpkg/alternatives/editor"


def choose(root: Path, *arguments: str) -> None:
    """update-alternatives(1) for the tree at `root`."""
    command = ["update-alternatives", "--root", str(root), "--quiet", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True)


def editor(root: Path, program: str, priority: int) -> None:
    for name in (program, f"{program}.1"):
        (root / "usr/bin" / name).write_text(program)
    link = ["--install", "/usr/bin/editor", "editor", f"/usr/bin/{program}", str(priority)]
    choose(root, *link, "--slave", "/usr/bin/editor.1", "editor.1", f"/usr/bin/{program}.1")


@pytest.mark.parametrize("priority", [10, 90], ids=["the image's was chosen", "theirs was chosen"])
def test_users_alternatives_outlive_those_of_the_image(jail: Jail, priority: int) -> None:
    """As when they installed nano, and the image comes without vim: `editor` is nano's then."""
    old = jail.image("old", FOO)
    for name in ("etc/alternatives", "var/lib/dpkg/alternatives"):
        (old.root / name).mkdir(parents=True, exist_ok=True)
    editor(old.root, "ours", 50)
    assemble(str(old.root), jail.path, jail.events)
    jail.image("new", FOO2)
    editor(jail.root, "theirs", priority)
    jail.upgrade()
    assert not (jail.root / "usr/bin/ours").exists()
    for name in ("editor", "editor.1"):
        assert (jail.root / "usr/bin" / name).readlink() == Path("/etc/alternatives") / name
        theirs = name.replace("editor", "theirs")
        assert (jail.root / "etc/alternatives" / name).readlink() == Path("/usr/bin") / theirs
    before = jail.read(GROUP)
    choose(jail.root, "--auto", "editor")
    assert jail.read(GROUP) == before
    jail.rollback()
    assert (jail.root / "usr/bin/ours").exists()
    assert "/usr/bin/theirs\n" in jail.read(GROUP)


def test_a_group_that_users_did_not_touch_goes_with_the_image() -> None:
    text = b"auto\n/usr/bin/vi\n\n/usr/bin/vim\n50\n\n"
    group = parse(b"vi", text)
    assert group is not None
    assert group.text == text
    assert without_images(b"vi", text, text) is None
    assert parse(b"vi", b"auto\n") is None
    for priority in (b"x", b"--5", b"9" * 5000):  # users write it, and int(bytes) does not take all of these
        assert parse(b"vi", text.replace(b"50", priority)) is None


def test_a_plan_says_that_users_files_keep_a_directory(jail: Jail) -> None:
    jail.assemble(FOO, BAR, Deb("app", "1", {"usr/share/turned/data": "x"}))
    jail.image("new", FOO2, Deb("app", "2", {"usr/share/turned": "a file by now"}))
    jail.write("usr/share/bar/mine", "theirs")
    jail.write("usr/share/turned/mine", "theirs")
    plan = jail.plan()
    assert kept_or_conflict(plan) == {"usr/share/bar": "kept", "usr/share/turned": "conflict"}
    result = jail.upgrade()
    assert result.skipped == ()
    assert result.plan.findings == plan.findings
    for name in ("bar", "turned"):
        assert [one.name for one in (jail.root / "usr/share" / name).iterdir()] == ["mine"]
    assert jail.read("usr/share/turned.cellblock-new") == "a file by now"
    assert jail.rollback().skipped == ()
    assert jail.read("usr/share/turned/data") == "x"
    assert jail.read("usr/share/turned/mine") == "theirs"
    assert not (jail.root / "usr/share/turned.cellblock-new").exists()


def test_what_users_diverted_or_overrode_is_no_damage(jail: Jail) -> None:
    jail.assemble(FOO, BAR)
    root = ["--root", str(jail.root)]
    divert = ["dpkg-divert", *root, "--local", "--rename", "--divert", "/usr/bin/foo.real", "/usr/bin/foo"]
    subprocess.run(divert, check=True, capture_output=True)
    jail.write("usr/bin/foo", "#!/bin/sh\nwrapper\n")
    override = ["dpkg-statoverride", *root, "--update", "--add", "root", "root", "4750", "/usr/bin/bar"]
    subprocess.run(override, check=True, capture_output=True)
    result = verify(jail.path, jail.events, repair=True)
    assert (result.n_damaged, result.repaired) == (0, False)
    assert "wrapper" in jail.read("usr/bin/foo")
    assert (jail.root / "usr/bin/bar").stat().st_mode & 0o7777 == 0o4750
    jail.write("usr/bin/bar", "other content")
    found = verify(jail.path, jail.events)
    assert [one.entry.path for one in found.damaged] == [b"usr/bin/bar"]


@pytest.fixture
def immutable(jail: Jail) -> Iterator[Jail]:
    """A jail on a filesystem that has the flag."""
    jail.assemble(FOO, BAR)
    jail.image("new", FOO2)
    if subprocess.run(["chattr", "+i", str(jail.root / "usr/bin/foo")], check=False).returncode != 0:
        pytest.skip("this filesystem has no immutable files")
    yield jail
    subprocess.run(["chattr", "-R", "-f", "-i", str(jail.root)], check=False)


def test_what_is_immutable_stays_and_holds_nothing_up(immutable: Jail) -> None:
    subprocess.run(["chattr", "+i", str(immutable.root / "usr/share/bar")], check=True)
    result = immutable.upgrade()
    skipped = {one.path.decode(): one.why for one in result.skipped}
    assert skipped.keys() >= {"usr/bin/foo", "usr/share/bar/data", "usr/share/bar"}
    assert "immutable" in skipped["usr/bin/foo"]
    assert "foo 1" in immutable.read("usr/bin/foo")
    assert immutable.read("usr/share/foo/data").startswith("2")
    assert not (immutable.path / ".cellblock/transaction").exists()
    assert immutable.tree.versions() == {"foo": "2"}


def test_a_database_that_is_immutable_is_said_beforehand(immutable: Jail) -> None:
    status = immutable.root / "var/lib/dpkg/status"
    subprocess.run(["chattr", "+i", str(status)], check=True)
    with pytest.raises(
        CellblockError, match=r"dpkg/status of .* is immutable.*nothing was changed"
    ) as caught:
        immutable.upgrade()
    assert caught.value.hint.startswith(f"chattr -i {status}")
    assert immutable.tree.versions() == {"bar": "1", "foo": "1"}
    assert not (immutable.path / ".cellblock/transaction").exists()
    subprocess.run(["chattr", "-i", str(status)], check=True)
    immutable.upgrade()
    assert immutable.tree.versions() == {"foo": "2"}
