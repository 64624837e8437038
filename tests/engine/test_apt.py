# SPDX-License-Identifier: Apache-2.0
"""The command lines of mmdebstrap."""

from __future__ import annotations

from pathlib import Path

from cellblock.engine import apt
from cellblock.engine.recipe import Bootstrap


def test_the_bootstrap_names_suite_components_and_packages_and_no_mirror_by_default() -> None:
    argv = apt.mmdebstrap(Bootstrap("trixie", "amd64", ("main",), (), ("tini",)), Path("/root/fs"))
    assert argv[-2:] == ["trixie", "/root/fs"]
    assert {"--include=tini", "--components=main", "--architectures=amd64"} <= set(argv)
    assert not [argument for argument in argv if "file-mirror" in argument]


def test_a_file_mirror_is_mounted_into_the_root_while_bootstrapping() -> None:
    source = "deb [trusted=yes] file:///srv/a noble main"
    argv = apt.mmdebstrap(Bootstrap("noble", "amd64", ("main",), (source,), ()), Path("/r"))
    assert argv[-3:] == ["noble", "/r", source]
    assert "--hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount" in argv


def test_the_expiry_date_of_an_index_is_ignored_only_when_asked() -> None:
    expired = "Acquire::Check-Valid-Until=false"
    assert "Valid-Until" not in " ".join(apt.mmdebstrap(Bootstrap("s", "a", (), (), ()), Path("/r")))
    argv = apt.mmdebstrap(Bootstrap("s", "a", (), (), (), (expired,)), Path("/r"))
    assert '--aptopt=Acquire::Check-Valid-Until "false"' in argv
