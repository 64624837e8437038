# SPDX-License-Identifier: Apache-2.0
"""What `up` does before there is a cluster."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock import paths
from cellblock.cluster import ClusterSpec, down, shell_argv
from cellblock.cluster.down import take_down
from cellblock.cluster.facts import state
from cellblock.cluster.facts.state import ClusterState
from cellblock.cluster.up import assemble_jail, bring_up
from cellblock.cluster.up_request import UpRequest, cluster_file, kept_file, up_options, volume_path
from cellblock.errors import CellblockError
from cellblock.events import Event, Events, Message, StepStarted
from cellblock.jail.volume.writer_lock import BusyError
from tests.ports import free_port


@pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps the owners of its files: needs root")
def test_an_assembly_that_failed_leaves_nothing_of_the_cluster(
    spec: Callable[..., ClusterSpec], tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "etc").mkdir(parents=True)
    (source / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")

    def change(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == "read and write":
            assert volume_path("test").is_dir()
            (source / "etc/passwd").write_text("changed\n")

    events = Events()
    events.subscribe(change)
    with pytest.raises(CellblockError, match="source changed while it was read"):
        assemble_jail(str(source), spec(volume=volume_path("test")), events)
    assert not state.folder("test").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="a jail keeps the owners of its files: needs root")
@pytest.mark.parametrize("purge", [False, True])
def test_a_jail_that_is_being_filled_is_not_taken_down(
    spec: Callable[..., ClusterSpec], tmp_path: Path, purge: bool
) -> None:
    """In a second terminal while `up` runs: `down` would say that nothing ran, or delete what `up` fills."""
    source = tmp_path / "source"
    (source / "etc").mkdir(parents=True)
    (source / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    refused: list[str] = []

    def take_it_down(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == "read and write":
            with pytest.raises(BusyError) as raised:
                take_down("test", Events(), purge=purge)
            refused.append(str(raised.value))

    events = Events()
    events.subscribe(take_it_down)
    assert assemble_jail(str(source), spec(volume=volume_path("test")), events).is_new
    assert len(refused) == 1
    assert "is being written by `jail assemble" in refused[0]
    assert (volume_path("test") / "root/etc/passwd").exists()


def test_an_engine_that_does_not_answer_is_told_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    monkeypatch.setenv("CELLBLOCK_CACHE", str(tmp_path / "cache"))
    said: list[Event] = []
    events = Events()
    events.subscribe(said.append)
    with pytest.raises(CellblockError, match="no Docker API: nothing answers"):
        bring_up(UpRequest("test", engine="docker", ssh_port=free_port()), events)
    assert said == []
    assert not (tmp_path / "cache").exists()
    assert not state.folder("test").exists()


def test_a_shell_without_its_engine_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with state.locked("test"):
        state.write(state.ClusterState("test", "debian13", "24.11", "podman", [], [], 2222, "/volume"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CellblockError, match="podman is not installed") as caught:
        shell_argv("test")
    assert caught.value.hint == "apt-get install podman"


def test_a_cluster_whose_record_is_damaged_is_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    with state.locked("test"):
        (state.folder("test") / "state.json").write_text("{")
    stopped: list[str] = []
    monkeypatch.setattr(down, "stop", lambda name, events, purge: stopped.append(name) or True)
    assert take_down("test", Events(), purge=False)
    assert stopped == ["test"]


def test_a_second_up_waits_for_the_first_and_says_so_at_once() -> None:
    said: list[str] = []
    waits, ended = threading.Event(), threading.Event()
    events = Events()

    def hear(event: Event) -> None:
        if isinstance(event, Message):
            said.append(event.text)
            waits.set()

    events.subscribe(hear)

    def second() -> None:
        with state.exclusive_up("test", events):
            ended.set()

    thread = threading.Thread(target=second)
    with state.exclusive_up("test", Events()):
        thread.start()
        assert waits.wait(20)
        assert not ended.is_set()
        with state.exclusive_up("other", Events()):
            pass
    thread.join(20)
    assert ended.is_set()
    assert said == [
        "another `up` of cluster test is at work: waiting for it to end (Ctrl-C gives up the wait)"
    ]


def test_down_does_not_cross_an_up_and_makes_no_lock() -> None:
    kept = state.folder("test")
    kept.mkdir(parents=True)
    assert not (paths.state() / "locks").exists()
    with state.exclusive_up("test", Events()):
        with pytest.raises(CellblockError, match="`up` of cluster test is at work"):
            take_down("test", Events(), purge=True)
        assert kept.is_dir()
    state.refuse_during_up("test", "nothing is at work")
    state.refuse_during_up("never-there", "nothing is at work")
    assert [path.name for path in (paths.state() / "locks").iterdir()] == ["test.up"]


def test_a_kept_file_has_the_options_of_the_last_up() -> None:
    file = cluster_file(UpRequest(name="test", workers=3, without=("accounting",)))
    known = ClusterState(
        *("test", "debian13", "24.11", "podman", [], [], 2222, "/volume"),
        file=file.model_dump(mode="json", by_alias=True),
    )
    kept = kept_file(known, UpRequest(name="test"))
    assert kept == file
    assert len(kept_file(known, UpRequest(name="test", workers=1)).nodes) == 1
    broken = replace(known, file={"name": 7})
    with pytest.raises(CellblockError, match="of another Cellblock"):
        kept_file(broken, UpRequest(name="test"))


def test_hints_name_the_same_up_with_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    request = UpRequest(
        *("test", "debian13", 3, 2299, "docker", ("http://mirror.example/debian", "deb file:/srv ./")),
        file=Path("c.yaml"),
        without=("rest", "metrics"),
        sites=(Path("ours"),),
    )
    known = ClusterState(
        *("test", "debian13", "24.11", "docker", [], [], 2299, "/volume"),
        options={option: list(values) for option, values in up_options(request).items()},
    )
    assert known.mirrors == ("http://mirror.example/debian", "deb file:/srv ./")
    with state.locked("test"):
        state.write(known)
    assert state.same_up("test", "--wait", "0") == (
        f"`build.py up --name test --cluster {tmp_path}/c.yaml --variant debian13 --workers 3 "
        "--ssh-port 2299 --engine docker --without rest --without metrics "
        "--mirror http://mirror.example/debian --mirror 'deb file:/srv ./' "
        f"--images {tmp_path}/ours --wait 0`"
    )
    with state.locked("test"):
        state.write(replace(known, options={}))
    assert state.same_up("test") == "`build.py up --name test`"
    # An earlier Cellblock did not note them.
    with state.locked("test"):
        state.write(replace(known, options=None))
    assert state.same_up("test") == "`build.py up --name test`, with its other options,"
