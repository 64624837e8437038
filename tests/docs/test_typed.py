# SPDX-License-Identifier: Apache-2.0
"""How-to pages of the jail's volume, typed line by line on a small volume that was made of a folder.

Other pages are typed elsewhere: getting-started.md by tests/integration/test_first_cluster.py, the tutorials
by tests/integration/test_tutorials.py, enroot.md by tests/enroot/test_documented_install.py, ci.md by
tests/ci/test_matrix.py. That all other commands and options exist is what tests/cli/test_docs.py checks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock.paths import PROJECT

_LINE = re.compile(r"^    build\.py (jail .*?)(?:\s{2,}#.*|\s+#.*)?$", re.MULTILINE)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What stands for the image: a tree that is a root filesystem as far as a volume asks."""
    if os.geteuid() != 0:
        pytest.skip("a volume belongs to root")
    tree = tmp_path / "image"
    for folder in ("usr/bin", "usr/lib", "etc", "home/ada", "var/lib"):
        (tree / folder).mkdir(parents=True)
    (tree / "etc/motd").write_text("the image's\n")
    (tree / "usr/bin/tool").write_text("#!/bin/sh\n")
    (tree / "home/ada/thesis").write_text("chapter 1\n")
    return tree


@pytest.fixture
def volume(tmp_path: Path, source: Path) -> Path:
    folder = tmp_path / "jail"
    type_line(f"jail assemble {source} {folder}", tmp_path)
    return folder


def type_line(line: str, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -I -m cellblock.cli {line}"],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}"
    return done.stdout


def lines_of(page: str) -> list[str]:
    """The commands of a page, each also with what stands in brackets."""
    found = _LINE.findall((PROJECT / "docs" / page).read_text())
    return [
        each
        for line in found
        for each in dict.fromkeys((re.sub(r" \[.*?\]", "", line), re.sub(r"[\[\]]", "", line)))
    ]


def test_an_upgrade_and_back(source: Path, volume: Path, tmp_path: Path) -> None:
    (source / "etc/motd").write_text("the new image's\n")
    (source / "usr/bin/other").write_text("#!/bin/sh\n")
    (volume / "root/srv").mkdir()
    (volume / "root/srv/result").write_text("a user's\n")
    moved = tmp_path / "moved"
    said = {}
    for line in lines_of("jail-upgrade.md"):
        line = line.replace("/mnt/jail", str(volume)).replace("upgrade jail ", f"upgrade {source} ")
        if "oci:/backup/jail:old" in line:
            # The very tree, at another place.
            source.rename(moved)
            line = line.replace("oci:/backup/jail:old", str(moved))
        said[line.replace(str(volume), "V").replace(str(source), "S")] = type_line(line, tmp_path)
        if line.endswith(f"apply plan {volume}"):
            assert (volume / "root/etc/motd").read_text() == "the new image's\n"
        if line.startswith("jail rollback"):
            assert (volume / "root/etc/motd").read_text() == "the image's\n"
            # The folder is the image's again, which repairs read.
            (source / "etc/motd").write_text("the image's\n")
            (source / "usr/bin/other").unlink()
    assert "/etc/motd" in said["jail upgrade S V --plan"]
    assert "result" in said["jail diff V --files"]
    assert (tmp_path / "users.tar").exists()
    assert (volume / "root/srv/result").read_text() == "a user's\n"


def test_a_backup_and_back(volume: Path, tmp_path: Path) -> None:
    if not shutil.which("restic"):
        pytest.skip("restic is not installed")
    lost: Callable[[], None] = (volume / "root/home/ada/thesis").unlink
    said = []
    for line in lines_of("jail-backup.md"):
        line = re.sub(r"\bNEW-VOLUME\b", str(tmp_path / "new"), line)
        line = re.sub(r"\bVOLUME\b", str(volume), line)
        line = re.sub(r"\bREPO\b", str(tmp_path / "repository"), line)
        if "--path" in line:
            lost()
        said.append(type_line(line, tmp_path, RESTIC_PASSWORD="of the test"))
    assert len(said) == 5
    assert (tmp_path / "new/root/home/ada/thesis").read_text() == "chapter 1\n"
    assert (volume / "root/home/ada/thesis").read_text() == "chapter 1\n"
