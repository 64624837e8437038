# SPDX-License-Identifier: Apache-2.0
"""Builds by a real dockerd that fail, are stopped, or have no daemon."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cellblock.build import build_images
from cellblock.engine import docker as docker_engine
from cellblock.engine.recipe import StepFailed
from cellblock.errors import CellblockError
from cellblock.events import Events
from tests.integration.docker_engine.builds import NEEDS, ROOT, VARIANT, Builds

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
    assert not [reference for reference in docker_engine.images() if name in reference]
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


_BUILD = """
import sys
from pathlib import Path
from cellblock.build import BuildRequest, build_images
from cellblock.events import Events, Output, SubjectState

def tell(event):
    if isinstance(event, Output):
        print(event.line, flush=True)
    elif isinstance(event, SubjectState):
        print(event.subject, event.state, flush=True)

events = Events()
events.subscribe(tell)
variant, archive, definitions, *images = sys.argv[1:]
request = BuildRequest(tuple(images), variant, (archive,), engine="docker", definitions=Path(definitions))
build_images(request, events)
"""


def test_ctrl_c_ends_a_build_and_leaves_nothing(builds: Builds) -> None:
    slow = builds.declare("dockertest-slow", f"summary: b\nfrom: {ROOT}\nrun: [echo begun, sleep 987]\n")
    late = builds.declare("dockertest-late", f"summary: b\nfrom: {ROOT}\nrun: [echo late]\n")
    process = subprocess.Popen(
        [sys.executable, "-c", _BUILD, VARIANT, builds.archive, str(builds.definitions), slow, late],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout
    said = list(iter(process.stdout.readline, "begun\n"))
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert f"{late} waiting\n" in said
    assert f"{slow} stopped\n" in rest
    assert f"{late} stopped\n" in rest
    assert "Interrupted: interrupted: what was being built was thrown away" in rest
    assert not [reference for reference in docker_engine.images() if slow in reference]
    # dockerd notices that nobody listens any more.
    ended = threading.Event()
    for _ in range(100):
        if not builds.client.containers.list(all=True):
            ended.set()
            break
        ended.wait(0.1)
    assert ended.is_set()


def test_without_a_daemon_the_message_says_where_it_was_looked_for(
    builds: Builds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(CellblockError, match=rf"no Docker daemon answers at unix://{tmp_path}") as raised:
        build_images(builds.request(ROOT), Events())
    assert "DOCKER_HOST" in raised.value.hint


def test_an_image_in_use_is_not_removed(builds: Builds) -> None:
    image = builds.docker.images[ROOT]
    tagged = docker_engine.tag(image, "localhost/cellblock/dockertest-more:1")
    assert docker_engine.images()[tagged.reference].id == image.id
    assert docker_engine.remove(tagged.reference)
    assert tagged.reference not in docker_engine.images()
    assert not docker_engine.remove(tagged.reference)
