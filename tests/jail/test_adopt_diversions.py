# SPDX-License-Identifier: Apache-2.0
"""An image diverts a package's file, as the jail's does with ldconfig, and the tree has the package."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from deb_trees import Deb, DebTree
from upgraded_jail import BAR, FOO, Jail, kept_or_conflict

from cellblock.jail.adopt import adopt
from cellblock.jail.assemble import assemble
from cellblock.jail.verify import verify

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="keeps owners: needs root")
OF_FOO = "#!/bin/sh\necho foo {}\n"


@pytest.fixture
def site(jail: Jail) -> Jail:
    """A site's own tree, adopted, and an image that has a link in the place of foo's program."""
    DebTree.make(jail.root, jail.debs, FOO, BAR)
    jail.path.chmod(0o755)
    return jail


def divert(root: Path) -> None:
    """As images/jail/image.yaml does."""
    command = [
        "dpkg-divert",
        f"--root={root}",
        "--local",
        "--rename",
        "--divert",
        "/usr/bin/foo.distribution",
    ]
    subprocess.run([*command, "--add", "/usr/bin/foo"], check=True, capture_output=True)
    (root / "usr/libexec").mkdir()
    (root / "usr/libexec/foo").write_text("the image's\n")
    (root / "usr/bin/foo").symlink_to("/usr/libexec/foo")


def is_diverted(site: Jail) -> None:
    assert str((site.root / "usr/bin/foo").readlink()) == "/usr/libexec/foo"
    assert site.tree.dpkg("--audit") == ""
    assert "usr/bin/foo" not in site.tree.dpkg("--verify")
    assert verify(site.path, site.events, content=True).n_damaged == 0
    # The package's next version lands where dpkg puts it.
    site.tree.install(Deb("foo", "9"))
    assert str((site.root / "usr/bin/foo").readlink()) == "/usr/libexec/foo"
    assert site.read("usr/bin/foo.distribution") == OF_FOO.format(9)


def test_the_same_version_of_the_package(site: Jail) -> None:
    adopt(site.path, site.events)
    divert(site.image("new", FOO, BAR).root)
    site.upgrade()
    assert site.read("usr/bin/foo.distribution") == OF_FOO.format(1)
    is_diverted(site)


def test_a_newer_version_of_the_sites_moves(site: Jail) -> None:
    site.tree.install(Deb("foo", "3"))
    adopt(site.path, site.events)
    divert(site.image("new", FOO, BAR).root)
    site.upgrade()
    assert site.tree.versions()["foo"] == "3"
    assert site.read("usr/bin/foo.distribution") == OF_FOO.format(3)
    assert (site.root / "usr/bin/foo.distribution").stat().st_mode & 0o777 == 0o755
    is_diverted(site)


def test_a_rollback_takes_it_back(site: Jail) -> None:
    site.tree.install(Deb("foo", "3"))
    adopt(site.path, site.events)
    divert(site.image("new", FOO, BAR).root)
    site.upgrade()
    site.rollback()
    assert site.read("usr/bin/foo") == OF_FOO.format(3)
    assert not (site.root / "usr/bin/foo.distribution").exists()
    assert site.tree.dpkg("--verify") == ""


def test_a_file_that_the_site_changed_stays_and_is_listed(site: Jail) -> None:
    site.write("usr/bin/foo", "patched\n")
    adopt(site.path, site.events)
    divert(site.image("new", FOO, BAR).root)
    plan = site.plan()
    site.upgrade()
    assert site.read("usr/bin/foo") == "patched\n"
    assert str((site.root / "usr/bin/foo.cellblock-new").readlink()) == "/usr/libexec/foo"
    assert kept_or_conflict(plan)["usr/bin/foo"] == "conflict"
    assert site.read("usr/bin/foo.distribution") == OF_FOO.format(1)


def test_users_upgrade_a_package_of_which_the_image_diverts_a_file(jail: Jail) -> None:
    """As `apt upgrade` in a jail does with libc-bin."""
    divert(jail.image("old", FOO, BAR).root)
    assemble(str(jail.folder / "old"), jail.path, jail.events)
    jail.tree.install(Deb("foo", "3"))
    assert jail.read("usr/bin/foo.distribution") == OF_FOO.format(3)
    is_diverted(jail)


def test_users_of_an_assembled_jail_who_have_a_newer_version(jail: Jail) -> None:
    jail.assemble(FOO, BAR)
    jail.tree.install(Deb("foo", "3"))
    divert(jail.image("new", FOO, BAR).root)
    jail.upgrade()
    assert jail.read("usr/bin/foo.distribution") == OF_FOO.format(3)
    is_diverted(jail)
