# SPDX-License-Identifier: Apache-2.0
"""No directories without end are left by a test, nor by a run that was killed."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cellblock.paths import PROJECT
from tests import deep_tree

_KILLED = """
import os, pathlib, signal, sys
from tests.deep_tree import make_deep
make_deep(pathlib.Path(sys.argv[1]), 3000)
os.kill(os.getpid(), signal.SIGKILL)
"""


_tops: list[Path] = []


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of notes of processes that have TMPDIR here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return deep_tree.notes()


def test_a_tree_is_made_and_left(tmp_path: Path) -> None:
    deep_tree.make_deep(tmp_path, 3000)
    assert (tmp_path / "d/d/d").is_dir()
    _tops.append(tmp_path)


def test_the_tree_of_the_test_before_is_gone() -> None:
    if not _tops:
        pytest.skip("the test before did not run")
    assert not _tops[0].exists()


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path, notes: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", _KILLED, str(top)]
    done = subprocess.run(command, cwd=PROJECT, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (top / "d/d").is_dir()
    deep_tree.remove_left()
    assert not top.exists()
    assert not list(notes.iterdir())


def test_a_tree_of_a_run_beside_this_one_stays(tmp_path: Path, notes: Path) -> None:
    (tmp_path / "top").mkdir()
    deep_tree.make_deep(tmp_path / "top", 10)
    assert list(notes.iterdir())
    deep_tree.remove_left()
    assert (tmp_path / "top/d").is_dir()


def test_what_pytest_could_not_remove_is_removed(tmp_path: Path, notes: Path) -> None:
    folder = tmp_path / f"pytest-of-{getpass.getuser()}/garbage-1"
    folder.mkdir(parents=True)
    deep_tree.make_deep(folder, 3000)
    next(notes.iterdir()).unlink()  # as after runs that kept none
    deep_tree.remove_left()
    assert not folder.exists()
