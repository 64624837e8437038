# SPDX-License-Identifier: Apache-2.0
"""`jail init`, what a Job's pod runs: all that is left to be done, however often it is started."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from deb_trees import Deb, DebTree

from cellblock.errors import CellblockError, UsageError
from cellblock.events import Event, Events, Message
from cellblock.jail.assemble import Options, OtherSourceError
from cellblock.jail.initialise import Initialised, InitialiseOptions, initialise, shard_of
from cellblock.jail.volume.volume import Volume

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps owners: needs root")

EVENTS = Events()


def run(source: Path, volume: Path, **options: object) -> Initialised:
    return initialise(str(source), volume, EVENTS, InitialiseOptions(Options(), **options))  # type: ignore[arg-type]


def test_it_assembles_once_and_says_when_the_volume_is_ready(small: Path, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    first = run(small, volume)
    state = Volume(volume).state()
    assert state
    assert (first.done, first.ready) == ("assembled", volume / "ready")
    assert (volume / "ready").read_text() == f"{state.source.id} {small}\n"
    assert (volume / "ready").stat().st_mode & 0o777 == 0o644
    before = (volume / "ready").stat()
    assert run(small, volume).done == "nothing"
    assert (volume / "ready").stat() == before


def test_another_image_is_an_upgrade_where_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "debs").mkdir()
    for number in "12":
        DebTree.make(tmp_path / number, tmp_path / "debs", Deb("foo", number))
    volume = tmp_path / "volume"
    run(tmp_path / "1", volume)
    before = (volume / "ready").read_text()
    with pytest.raises(OtherSourceError):
        run(tmp_path / "2", volume)
    assert (volume / "ready").read_text() == before
    assert run(tmp_path / "2", volume, upgrade=True).done == "upgraded"
    assert str(tmp_path / "2") in (volume / "ready").read_text()
    assert DebTree(volume / "root", tmp_path / "debs").versions()["foo"] == "2"


def test_the_last_shard_says_it(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = tmp_path / "volume"
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")
    assert run(small, volume, shards=2).waiting == (0,)
    assert not (volume / "ready").exists()
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    assert run(small, volume, shards=2).ready == volume / "ready"


@pytest.mark.parametrize("index", [None, "", "two", "2", "-1"])
def test_a_shard_that_cannot_be_is_wrong_usage(index: str | None) -> None:
    with pytest.raises(UsageError, match="Indexed Job with 2 completions"):
        shard_of(2, {} if index is None else {"JOB_COMPLETION_INDEX": index})


def test_it_waits_for_another_writer_for_as_long_as_it_may(small: Path, tmp_path: Path) -> None:
    volume = Volume(tmp_path / "volume")
    volume.prepare()
    with volume.lock("another"), pytest.raises(CellblockError, match="is being written by `another`"):
        run(small, volume.path)
    held, waited_for = threading.Event(), threading.Event()

    def writer() -> None:
        with volume.lock("another"):
            held.set()
            waited_for.wait(60)

    def note(event: Event) -> None:
        if isinstance(event, Message) and "trying again" in event.text:
            waited_for.set()

    thread = threading.Thread(target=writer)
    thread.start()
    held.wait()
    events = Events()
    events.subscribe(note)
    result = initialise(str(small), volume.path, events, InitialiseOptions(Options(), wait_s=60))
    thread.join()
    assert result.done == "assembled"
    assert waited_for.is_set()
