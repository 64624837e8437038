# SPDX-License-Identifier: Apache-2.0
"""Directories that settings name, where other users could have been first; files that an image's author
could have put where enroot writes. With fs.protected_* all 0: what a user could do then, root does here."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.enroot.conftest import Enroot

STRANGER = 4243


@pytest.fixture
def common(enroot: Enroot) -> Iterator[Path]:
    """A directory like /tmp."""
    if enroot.account is None:
        pytest.skip("another user's files take root to make them")
    folder = Path(tempfile.mkdtemp(prefix="cellblock-test-", dir="/var/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def start(enroot: Enroot, folder: Path) -> subprocess.CompletedProcess[str]:
    return enroot("start", "small", "true", env={"ENROOT_RUNTIME_PATH": str(folder)})


def load(enroot: Enroot, folder: Path) -> subprocess.CompletedProcess[str]:
    return enroot("list", env={"ENROOT_DATA_PATH": str(folder)})


KINDS = {
    "a directory of another's": "another user made, and can exchange, this part of",
    "a link of another's": "another user made, and can exchange, this part of",
    "below a directory of another's": "another user made, and can exchange, this part of",
    "below a link of another's": "another user made, and can exchange, this part of",
    "below what all may write": "everybody can put another in the place of this part of",
}


@pytest.mark.parametrize("what", [start, load], ids=["ENROOT_RUNTIME_PATH", "ENROOT_DATA_PATH"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_that_another_can_exchange_is_refused(
    enroot: Enroot, common: Path, what: object, kind: str
) -> None:
    """Of a container that is being set up: the other's files would be its programs."""
    assert enroot.account
    name = common / ".enroot-1000"
    if "link" in kind:
        own = enroot.home / "own"
        own.mkdir()
        shutil.chown(own, enroot.account, enroot.account)
        name.symlink_to(own)
        os.lchown(name, STRANGER, STRANGER)
    elif kind == "below what all may write":
        name.mkdir()
        name.chmod(0o777)
        (name / "x").mkdir(mode=0o700)
        shutil.chown(name / "x", enroot.account, enroot.account)
    else:
        name.mkdir()
        name.chmod(0o777)
        os.chown(name, STRANGER, STRANGER)
    done = (start if what is start else load)(enroot, name / "x" if kind.startswith("below") else name)
    assert done.returncode == 1
    assert KINDS[kind] in done.stderr
    assert "to one that you may write" in done.stderr


@pytest.mark.parametrize("kind", ["made", "own", "own link"])
def test_a_directory_of_ones_own_there_is_used(enroot: Enroot, common: Path, kind: str) -> None:
    assert enroot.account
    name = common / ".enroot-1000"
    if kind == "own":
        name.mkdir(mode=0o700)
        shutil.chown(name, enroot.account, enroot.account)
    if kind == "own link":
        own = enroot.home / "own"
        own.mkdir()
        shutil.chown(own, enroot.account, enroot.account)
        name.symlink_to(own)
        subprocess.run(["chown", "--no-dereference", str(enroot.account), name], check=True)
    if kind != "own link":  # nothing was ever mounted on one
        done = start(enroot, name)
        assert done.returncode == 0, done.stderr
    done = load(enroot, name)
    assert done.returncode == 0, done.stderr


def test_containers_lie_where_not_all_may_write(enroot: Enroot, common: Path) -> None:
    """Whose name is first is anybody's there."""
    done = load(enroot, common)
    assert (done.returncode, "everybody can write into the directory of ENROOT_DATA_PATH" in done.stderr) == (
        1,
        True,
    )
    assert start(enroot, common).returncode == 0  # a place to mount on, in a namespace of one's own


def test_an_export_is_never_in_anothers_file(enroot: Enroot, common: Path) -> None:
    """On a file system without nameless files, in a directory of everybody's. The draft's name was the
    process's number, and a file of another's there was taken for it, which then was the image."""
    if not shutil.which("fuse-overlayfs"):
        pytest.skip("fuse-overlayfs is not installed")
    lower, mounted = common / "lower", common / "mounted"
    for folder in (lower, common / "upper", common / "work", mounted):
        folder.mkdir()
    options = f"lowerdir={lower},upperdir={common}/upper,workdir={common}/work,allow_other"
    if subprocess.run(["fuse-overlayfs", "-o", options, mounted]).returncode:
        pytest.skip("no FUSE here")
    try:
        mounted.chmod(0o1777)
        with pytest.raises(OSError, match="not supported"):
            os.open(mounted, os.O_TMPFILE | os.O_RDWR)
        own = int(Path("/proc/sys/kernel/ns_last_pid").read_text())
        for number in range(own, own + 400):
            draft = mounted / f".x.sqsh.enroot-{number}"
            draft.touch()
            draft.chmod(0o666)
            os.chown(draft, STRANGER, STRANGER)
        done = enroot("export", "-o", str(mounted / "x.sqsh"), "small")
        assert done.returncode == 0, done.stderr
        assert (mounted / "x.sqsh").owner() == enroot.account
        assert {path.stat().st_size for path in mounted.glob(".x.sqsh.enroot-*")} <= {0}
    finally:
        subprocess.run(["umount", mounted], check=True)


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_an_image_with_names_of_drafts(enroot: Enroot, kind: str) -> None:
    """Nobody waits for the other end of a FIFO, and no other file of the image is written."""
    etc = enroot.data / "small/etc"
    (etc / "passwd").unlink()  # so that it is written
    if kind == "fifo":
        os.mkfifo(etc / ".passwd.enroot", 0o666)
    else:
        (etc / "precious").write_text("precious\n")
        os.link(etc / "precious", etc / ".passwd.enroot")
    for path in (etc / ".passwd.enroot", etc):
        if enroot.account:
            shutil.chown(path, enroot.account, enroot.account)
    command = enroot.command(enroot.program, "start", "--root", "--rw", "small", "true")
    done = subprocess.run(
        command, env=enroot.environment(), capture_output=True, text=True, timeout=30, cwd=enroot.home
    )
    assert done.returncode == 0, done.stderr
    if kind == "link":
        assert (etc / "precious").read_text() == "precious\n"
    assert not (etc / ".passwd.enroot").exists()
