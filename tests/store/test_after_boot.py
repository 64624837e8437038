# SPDX-License-Identifier: Apache-2.0
"""A power cut: the records and names are there, the data of what was written last is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cellblock.events import Event, Events, Message
from cellblock.store import after_boot
from cellblock.store.after_boot import boot_id, check_after_boot
from tests.store.conftest import NOW, SmallCache, damage


@pytest.fixture
def cut(cache: SmallCache, monkeypatch: pytest.MonkeyPatch) -> SmallCache:
    """Of an earlier boot: `old` was written long before `new`."""
    cache.image("old", cache.layer("oldtree"))
    cache.deb("old", hours_ago=2)
    for path in cache.folder.rglob("*"):
        if path.is_file():
            os.utime(path, (NOW - 7200, NOW - 7200))
    cache.image("new", cache.layer("newtree"))
    cache.deb("new", hours_ago=-(time.time() - NOW) / 3600)
    (cache.folder / "boot").write_text("the boot before\n")
    # Nobody can set the time of a folder's last change.
    unpacked = after_boot._unpacked
    monkeypatch.setattr(after_boot, "_unpacked", lambda tree: NOW if "old" in tree.name else unpacked(tree))
    return cache


def said_by_check(cache: SmallCache) -> list[str]:
    said: list[str] = []
    events = Events()

    def note(event: Event) -> None:
        if isinstance(event, Message):
            said.append(event.text)

    events.subscribe(note)
    check_after_boot(cache.folder, events)
    return said


def test_what_is_whole_is_kept_but_for_trees_which_are_unpacked_again(cut: SmallCache) -> None:
    assert said_by_check(cut) == []
    assert cut.images() == {"old", "new"}
    assert cut.trees() == {"oldtree"}
    assert len(list(cut.store.folder.glob("sha256/*/*.deb"))) == 2
    assert (cut.folder / "boot").read_text().strip() == boot_id()


def test_an_image_without_the_data_of_a_layer_is_forgotten_and_the_others_stay(cut: SmallCache) -> None:
    blob = cut.layout.blob(cut.layout.image("new:v").manifest.layers[0].digest)
    os.truncate(blob, 0)
    os.truncate(blob, 1000)  # zeros, as ext4 and xfs leave them
    (said,) = said_by_check(cut)
    assert blob.name in said
    assert cut.images() == {"old"}
    assert not (cut.folder / "layers" / "newtree.json").exists()


def test_a_deb_of_zeros_is_fetched_again(cut: SmallCache) -> None:
    (new,) = [path for path in cut.store.folder.glob("sha256/*/*.deb") if path.stat().st_mtime > NOW]
    size = new.stat().st_size
    os.truncate(new, 0)
    os.truncate(new, size)
    said_by_check(cut)
    assert not new.exists()


def test_what_was_written_long_before_is_not_read_again(cut: SmallCache) -> None:
    old = cut.layout.blob(cut.layout.image("old:v").manifest.layers[0].digest)
    status = old.stat()
    damage(old)
    os.utime(old, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert said_by_check(cut) == []
    assert cut.images() == {"old", "new"}


def test_within_one_boot_nothing_is_looked_at(cut: SmallCache) -> None:
    check_after_boot(cut.folder, Events())
    damage(cut.layout.blob(cut.layout.image("new:v").manifest.layers[0].digest))
    assert said_by_check(cut) == []
    assert cut.images() == {"old", "new"}


def test_a_cache_without_a_mark_is_taken_as_it_is(cache: SmallCache) -> None:
    cache.image("a", cache.layer("t"))
    check_after_boot(cache.folder, Events())
    assert cache.trees() == {"t"}
    assert (cache.folder / "boot").is_file()


def test_a_cache_that_cannot_be_written_is_for_others_to_complain_of(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_after_boot(tmp_path / "file", Events())


def test_no_cache_is_no_error(tmp_path: Path) -> None:
    check_after_boot(tmp_path / "none", Events())
