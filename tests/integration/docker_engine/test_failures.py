# SPDX-License-Identifier: Apache-2.0
"""Builds by a real dockerd that fail, are stopped, or have no daemon."""

from __future__ import annotations

import re
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cellblock.build import build_images
from cellblock.build.containerfile import RenderRequest, rendered
from cellblock.build.references import reference
from cellblock.engine.docker import DockerEngine
from cellblock.engine.recipe import StepFailed
from cellblock.errors import CellblockError
from cellblock.events import Event, Events, SubjectState
from cellblock.process import Interrupted
from tests.integration.docker_engine.builds import CHILD, NEEDS, ROOT, VARIANT, Builds

pytestmark = NEEDS


def test_a_failed_step_says_image_step_last_lines_and_what_to_do(builds: Builds) -> None:
    name = builds.declare("dockertest-bad", f"summary: b\nfrom: {ROOT}\nrun: [echo about to fail, exit 9]\n")
    with pytest.raises(StepFailed) as raised:
        build_images(builds.request(name), Events())
    text = str(raised.value)
    assert f"image {name}: step 'run' failed with status 9" in text
    assert "| about to fail" in text
    assert f"python3 build.py build {name} --variant {VARIANT}" in text
    assert "--engine docker" in text
    assert re.search(
        rf"in one of the 2 lines from \S*/{name}/image.yaml:3: run to \S*/{name}/image.yaml:3: run", text
    )
    assert not [reference for reference in DockerEngine().images() if name in reference]
    assert builds.client.containers.list(all=True) == []


def test_an_unknown_package_is_named_with_the_place_to_correct(builds: Builds) -> None:
    text = f"summary: b\nfrom: {ROOT}\npackages: [no-such-package-anywhere]\n"
    with pytest.raises(StepFailed, match="Unable to locate package no-such-package-anywhere") as raised:
        build_images(builds.request(builds.declare("dockertest-unknown", text)), Events())
    assert "correct `packages`" in raised.value.hint
    assert re.search(r"\n  in \S*/dockertest-unknown/image.yaml:3: packages$", raised.value.message)


def test_the_root_of_a_failed_step_is_kept_and_the_way_into_it_is_told(builds: Builds) -> None:
    text = f"summary: b\nfrom: {ROOT}\nrun: ['echo here > /left; exit 3']\n"
    asked = replace(builds.request(builds.declare("dockertest-kept", text)), keep_failed=True)
    with pytest.raises(StepFailed) as raised:
        build_images(asked, Events())
    told = re.search(
        r"look into the root with: docker run .* \$\(docker commit ([0-9a-f]+)\)", raised.value.hint
    )
    assert told is not None
    container = builds.client.containers.get(told[1])
    try:
        members, _ = container.get_archive("/left")
        assert b"here" in b"".join(members)
    finally:
        container.remove()


def test_a_stopped_build_ends_at_once_and_leaves_nothing(builds: Builds) -> None:
    bad = builds.declare("dockertest-stops", f"summary: b\nfrom: {ROOT}\nrun: [sleep 5, exit 1]\n")
    slow = builds.declare("dockertest-slow", f"summary: b\nfrom: {ROOT}\nrun: [echo begun, sleep 987]\n")
    states: dict[str, str] = {}
    events = Events()

    def note(event: Event) -> None:
        if isinstance(event, SubjectState):
            states[event.subject] = event.state

    events.subscribe(note)
    with pytest.raises(StepFailed, match=bad):
        build_images(builds.request(bad, slow), events)
    assert states[slow] == "stopped"
    assert not [reference for reference in DockerEngine().images() if slow in reference]
    # dockerd notices that nobody listens any more.
    ended = threading.Event()
    for _ in range(100):
        if not builds.client.containers.list(all=True):
            ended.set()
            break
        ended.wait(0.1)
    assert ended.is_set()


def test_a_stopped_engine_builds_nothing_more(builds: Builds) -> None:
    engine = DockerEngine()
    engine.stop()
    asked = RenderRequest((CHILD,), VARIANT, (builds.archive,), builds.definitions)
    with rendered(asked) as file:
        recipe = file.recipes[-1]
        # What the daemon calls the images that are stages of the file.
        there = {need: reference(need, file.variant) for need in recipe.made_from}
        with pytest.raises(Interrupted, match=CHILD):
            engine.build(replace(recipe, made_from=there), _Silent())


class _Silent:
    """A report that nobody reads."""

    def step(self, title: str) -> Any:
        return nullcontext()

    def line(self, text: str) -> None:
        pass

    def downloaded(self, seconds: float) -> None:
        pass


def test_without_a_daemon_the_message_says_where_it_was_looked_for(
    builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(CellblockError, match=rf"no Docker daemon answers at unix://{tmp_path}") as raised:
        build_images(builds.request(ROOT), Events())
    assert "DOCKER_HOST" in raised.value.hint


def test_an_image_in_use_is_not_removed(builds: Builds) -> None:
    engine = DockerEngine()
    image = builds.docker.images[ROOT]
    tagged = engine.tag(image, "localhost/cellblock/dockertest-more:1")
    assert engine.images()[tagged.reference].id == image.id
    assert engine.remove(tagged.reference)
    assert tagged.reference not in engine.images()
    assert not engine.remove(tagged.reference)
