# SPDX-License-Identifier: Apache-2.0
"""What a restore has otherwise than the list is put right, unless the snapshot has it so, too."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cellblock.errors import CellblockError
from cellblock.jail.backup import listing
from cellblock.jail.backup.reconcile import Reconciled, reconcile

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="owners: needs root")

_TIME = 1_700_000_000_123_456_789
_TEXT = "2023-11-14T23:13:20.123456789+01:00"


class Restored:
    """A tree that was listed, and then changed as a restore, or a job before it, might have."""

    def __init__(self, folder: Path) -> None:
        self.root, self.list = folder / "root", folder / "list"
        self.root.mkdir()
        self.nodes: list[dict[str, Any]] = []

    def file(self, name: str, text: str = "text") -> Path:
        path = self.root / name
        path.write_text(text)
        path.chmod(0o4750)
        os.utime(path, ns=(_TIME, _TIME))
        return path

    def listed(self) -> None:
        listing.write(self.list, listing.read_tree(os.fsencode(self.root)))

    def in_snapshot(self, path: str, **fields: Any) -> None:
        """As restic writes it: Go's mode bits, sizes of files only."""
        node = {
            "path": f"/root/{path}",
            "type": "file",
            "mode": 0o750 | 1 << 23,
            "uid": 0,
            "gid": 0,
            "size": 4,
        }
        self.nodes.append({**node, "mtime": _TEXT, **fields})

    def reconcile(self) -> Reconciled:
        def ls(tell: Callable[[dict[str, Any]], None]) -> None:
            for node in self.nodes:
                tell(node)

        return reconcile(self.list, self.root, ls)


@pytest.fixture
def tree(tmp_path: Path) -> Restored:
    return Restored(tmp_path)


def test_what_the_restore_lost_is_put_right(tree: Restored) -> None:
    path = tree.file("program")
    os.setxattr(path, "user.note", b"x")
    tree.listed()
    path.chmod(0o700)
    os.chown(path, 5, 6)
    os.setxattr(path, "user.note", b"y")
    os.setxattr(path, "user.more", b"z")
    tree.in_snapshot("program")
    result = tree.reconcile()
    assert (result.mended, result.moving, result.losses) == (1, 0, ())
    status = path.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_mtime_ns) == (0o4750, 0, _TIME)
    assert [(name, os.getxattr(path, name)) for name in os.listxattr(path)] == [("user.note", b"x")]


def test_what_a_job_changed_before_it_was_stored_stays_so(tree: Restored) -> None:
    path = tree.file("program")
    gone = tree.file("gone")
    tree.listed()
    gone.unlink()
    tree.file("program", "longer text")
    tree.file("made meanwhile")
    tree.in_snapshot("program", size=11)
    result = tree.reconcile()
    assert (result.mended, result.moving, result.losses) == (0, 4, ()), "these three, and their folder"
    assert path.read_text() == "longer text"


def test_a_job_changed_it_and_the_restore_lost_something_too(tree: Restored) -> None:
    path = tree.file("program")
    tree.listed()
    tree.file("program", "longer text").chmod(0o600)
    tree.in_snapshot("program", size=11, uid=7)
    tree.reconcile()
    assert (path.stat().st_uid, oct(path.stat().st_mode)) == (7, "0o104750")


def test_a_file_of_the_snapshot_that_is_not_there_is_a_loss(tree: Restored) -> None:
    tree.file("program").rename(tree.root / "x")
    tree.file("program")
    tree.listed()
    (tree.root / "program").unlink()
    tree.in_snapshot("program")
    result = tree.reconcile()
    assert result.missing == 1
    assert result.losses == ("/program: is missing",)


def test_names_that_json_cannot_hold_are_found_in_the_snapshot(tree: Restored) -> None:
    path = Path(os.fsdecode(os.fsencode(tree.root) + b"/caf\xe9"))
    path.write_text("text")
    tree.listed()
    path.write_text("longer text")
    os.utime(path, ns=(_TIME, _TIME))
    path.chmod(0o4750)
    tree.in_snapshot("caf�", size=11)
    result = tree.reconcile()
    assert (result.moving, result.losses) == (1, ())


@pytest.mark.parametrize("cut", [0, 20, -1])
def test_a_listing_that_was_cut_off_is_known_as_such(tree: Restored, cut: int) -> None:
    tree.file("program")
    tree.listed()
    tree.list.write_bytes(tree.list.read_bytes()[:cut])
    with pytest.raises(CellblockError, match="damaged listing"):
        list(listing.read(tree.list))
