# SPDX-License-Identifier: Apache-2.0
"""Shells in containers that do not run, what a container that ended said, and nodes of two partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.cluster.changing import readiness
from cellblock.cluster.definition.model import NodeStatus
from cellblock.cluster.engine import containers
from cellblock.cluster.facts.state import ClusterState
from cellblock.cluster.shell import require_running
from cellblock.errors import CellblockError
from tests.cluster.fake_engine import FakeContainer, FakeEngine


def engine_program(folder: Path, text: str) -> list[str]:
    """The argv of a shell, by an engine's client that answers with the shell lines `text`."""
    program = folder / "engine"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return [str(program), "exec", "-it", "cellblock-test-login", "jail-enter"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo exited", r"container cellblock-test-login does not run \(exited\)"),
        ("echo 'Error: no such container' >&2; exit 125", r"does not run \(it is gone\)"),
    ],
)
def test_a_container_that_does_not_run_is_named_with_the_way_on(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CellblockError, match=said) as caught:
        require_running("test", engine_program(tmp_path, text))
    assert caught.value.hint.startswith("`build.py up --name test`")


@pytest.mark.parametrize("text", ["echo running", "echo 'Error: busy' >&2; exit 125"])
def test_a_shell_is_refused_for_nothing_else(tmp_path: Path, text: str) -> None:
    require_running("test", engine_program(tmp_path, text))


def engine_with(**states: str) -> FakeEngine:
    fake = FakeEngine()
    for host, state in states.items():
        labels = {"org.cellblock.cluster": "test", "org.cellblock.role": host}
        fake.made.append(FakeContainer(fake, f"cellblock-test-{host}", labels, "image", {}, state))
    return fake


def test_a_node_of_two_partitions_is_one_node() -> None:
    fake = engine_with(controller="running")
    fake.on_exec = lambda container, command: (0, "worker-1 idle\nworker-1 idle\nworker-2 mix\n")
    assert containers.nodes(fake, "test") == (  # type: ignore[arg-type]
        NodeStatus("worker-1", "idle"),
        NodeStatus("worker-2", "mix"),
    )


def test_whoever_waits_is_shown_what_the_container_that_ended_said() -> None:
    """A change of a cluster that runs said that the lines are above, where none were."""
    fake = engine_with(controller="running", rest="exited")
    known = ClusterState("test", "debian13", "24.11", "podman", ["worker-1"], ["worker-1"], 2222, "/volume")
    with pytest.raises(CellblockError, match=r"cellblock-test-rest ended \(exited\)") as caught:
        readiness.wait_ready(fake, known)  # type: ignore[arg-type]
    assert "last words of cellblock-test-rest" in caught.value.message
    assert "last words of cellblock-test-controller" not in caught.value.message
