# SPDX-License-Identifier: Apache-2.0
"""An archive is made once for its key, whole or not at all."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cellblock.packages.flat_archive import FlatArchive

KEY = "0123456789abcdef" * 4


def fill(folder: Path) -> None:
    (folder / "Packages").write_text("")
    (folder / "Release").write_text("")


def test_it_is_made_once(tmp_path: Path) -> None:
    archive = FlatArchive(tmp_path, KEY)
    assert not archive.is_made
    assert archive.ensure(fill) == archive.path == tmp_path / KEY[:32]
    assert archive.is_made
    assert archive.ensure(lambda folder: pytest.fail("made again")) == archive.path
    assert archive.line == f"deb [trusted=yes] file://{archive.path} ./"


def test_what_fails_leaves_none_and_its_rest_is_not_taken_over(tmp_path: Path) -> None:
    archive = FlatArchive(tmp_path, KEY)

    def fails(folder: Path) -> None:
        fill(folder)
        (folder / "half").write_text("")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        archive.ensure(fails)
    assert not archive.is_made
    archive.ensure(fill)
    assert sorted(path.name for path in archive.path.iterdir()) == ["Packages", "Release"]


def test_the_second_waits_for_the_first_and_takes_what_it_made(tmp_path: Path) -> None:
    archive, begun, go_on, told = FlatArchive(tmp_path, KEY), threading.Event(), threading.Event(), []

    def slowly(folder: Path) -> None:
        begun.set()
        assert go_on.wait(10)
        fill(folder)

    first = threading.Thread(target=archive.ensure, args=(slowly,))
    first.start()
    assert begun.wait(10)
    archive.ensure(
        lambda folder: pytest.fail("made twice"), waiting=lambda: (told.append("waits"), go_on.set())[0]
    )
    first.join()
    assert told == ["waits"]
