# SPDX-License-Identifier: Apache-2.0
"""What `up` does before there is a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock.cluster import ClusterSpec, down, shell_argv
from cellblock.cluster.down import take_down
from cellblock.cluster.facts import state
from cellblock.cluster.up import assemble_jail, bring_up
from cellblock.cluster.up_request import UpRequest, volume_path
from cellblock.errors import CellblockError
from cellblock.events import Event, Events, StepStarted
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
