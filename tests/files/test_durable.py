# SPDX-License-Identifier: Apache-2.0
"""Who reads a file that is written sees the old one or the new one, whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock.files import durable


@pytest.mark.parametrize("write", [durable.write, durable.replace])
def test_a_file_is_made_and_replaced_and_nothing_else_is_left(
    tmp_path: Path, write: Callable[[Path, str], None]
) -> None:
    write(tmp_path / "a", "one")
    write(tmp_path / "a", "two")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "two")]


def test_what_must_last_is_readable_by_its_owner_alone_unless_told(tmp_path: Path) -> None:
    durable.write(tmp_path / "a", "")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    durable.write(tmp_path / "a", "", mode=0o644)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o644


def test_what_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    durable.replace(tmp_path / "a", "old")
    with pytest.raises(UnicodeEncodeError):
        durable.replace(tmp_path / "a", "\udc80")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_many_replace_one_file_at_once(tmp_path: Path) -> None:
    path, texts = tmp_path / "a", [str(number) * 100_000 for number in range(8)]
    durable.replace(path, texts[0])
    stop, seen = threading.Event(), set[str]()

    def reading() -> None:
        while not stop.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=reading)
    reader.start()
    writers = [
        threading.Thread(target=durable.replace, args=(path, text)) for text in texts for _ in range(4)
    ]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert seen <= set(texts)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
