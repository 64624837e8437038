# SPDX-License-Identifier: Apache-2.0
"""A look at processes does not wait for one that keeps its readers waiting."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cellblock.machine import processes
from cellblock.machine.processes import look_at_each

# Beyond what a busy machine needs for a look that answers at once.
_BOUND_S = 20.0


def folders(place: Path, count: int, silent: set[int]) -> list[Path]:
    """Folders with a file to read; reading of `silent` ones waits for ever: it is a fifo."""
    made = [place / str(number) for number in range(count)]
    for number, folder in enumerate(made):
        folder.mkdir()
        if number in silent:
            os.mkfifo(folder / "file")
        else:
            (folder / "file").write_text(str(number))
    return made


def read(folder: Path) -> str:
    return (folder / "file").read_text()


def test_all_that_answer_are_looked_at_once(tmp_path: Path) -> None:
    asked = folders(tmp_path, 5, set())
    looked = look_at_each(asked, read)
    assert looked.silent == ()
    assert looked.found == {folder: folder.name for folder in asked}


def test_those_behind_a_silent_one_are_looked_at(tmp_path: Path) -> None:
    asked = folders(tmp_path, 6, {0, 3, 5})
    started = time.monotonic()
    looked = look_at_each(asked, read)
    assert time.monotonic() - started < _BOUND_S
    assert looked.silent == (asked[0], asked[3], asked[5])
    assert sorted(looked.found.values()) == ["1", "2", "4"]


def test_thousands_of_silent_ones_take_neither_hours_nor_threads(tmp_path: Path) -> None:
    count = processes._MOST_SILENT + 20
    started = time.monotonic()
    looked = look_at_each(folders(tmp_path, count, set(range(count))), read)
    assert time.monotonic() - started < _BOUND_S
    assert len(looked.silent) == count


def test_what_goes_wrong_is_raised(tmp_path: Path) -> None:
    asked = folders(tmp_path, 2, set())
    (asked[1] / "file").unlink()
    with pytest.raises(FileNotFoundError):
        look_at_each(asked, read)
