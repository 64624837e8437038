# SPDX-License-Identifier: Apache-2.0
"""Paths inside the jail cannot lead out of it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from tests.spank_jail.mount_core import JailError, resolve

Tree = tuple[Path, int]


def identity(fd: int) -> tuple[int, int]:
    """Device and inode; closes the descriptor."""
    found = os.fstat(fd)
    os.close(fd)
    return found.st_dev, found.st_ino


def test_an_absolute_link_means_the_jails_own(tree: Tree) -> None:
    path, root = tree
    (path / "link").symlink_to("/etc")
    assert identity(resolve(root, "/link")) == identity(os.open(path / "etc", os.O_PATH))


@pytest.mark.parametrize("climb", ["/..", "/../../..", "/etc/../../../../.."])
def test_parents_end_at_the_root(tree: Tree, climb: str) -> None:
    path, root = tree
    assert identity(resolve(root, climb)) == identity(os.open(path, os.O_PATH))


def test_creating_follows_links_inside_only(tree: Tree) -> None:
    path, root = tree
    (path / "out").symlink_to("../../../etc")
    os.close(resolve(root, "/out/made/here", "dir"))
    assert (path / "etc/made/here").is_dir()


def test_magic_links_are_refused(tmp_path: Path) -> None:
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        with pytest.raises(JailError) as caught:
            resolve(root, f"/proc/self/fd/{root}")
        assert caught.value.number == errno.ELOOP
    finally:
        os.close(root)


def test_a_link_swapped_in_a_loop_never_leads_out(tree: Tree) -> None:
    path, root = tree
    outside = Path("/etc").stat()
    (path / "dir").mkdir()
    stop = threading.Event()
    found = (0, 0)

    def swap() -> None:
        (path / "spare").symlink_to("/../../../../../../etc")
        while not stop.is_set():
            (path / "dir").rename(path / "kept")
            (path / "spare").rename(path / "dir")
            (path / "dir").rename(path / "spare")
            (path / "kept").rename(path / "dir")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(3000):
            number = 0
            try:
                found = identity(resolve(root, "/dir"))
            except JailError as error:
                number = error.number
            assert number in (0, errno.ENOENT, errno.EAGAIN)
            assert found != (outside.st_dev, outside.st_ino)
    finally:
        stop.set()
        swapper.join()
