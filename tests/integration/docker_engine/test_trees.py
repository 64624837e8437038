# SPDX-License-Identifier: Apache-2.0
"""The docker engine and the rendered Containerfile, with a real dockerd and the builders of this machine.

What each builder makes of the same definitions is compared path by path.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cellblock.bench.peers.build_peers import docker_commands
from cellblock.build import build_images
from cellblock.engine import apt
from cellblock.engine.archive_server import serve
from cellblock.engine.stages import NAME, SOURCES_ARGUMENT
from cellblock.events import Events, Output, StepStarted
from tests.integration import trees
from tests.integration.docker_engine.builds import CHILD, NEEDS, ROOT, TOOL, TOP, Builds, comparable

pytestmark = NEEDS


@pytest.mark.parametrize("name", [ROOT, TOOL, TOP, CHILD])
def test_both_engines_make_the_same_tree(builds: Builds, name: str) -> None:
    ours = builds.docker_tree(builds.docker.images[name].reference)
    with trees.buildah_root(builds.buildah.images[name].reference) as root:
        theirs = comparable(trees.entries(root))
    assert trees.differences(ours, theirs) == []
    assert len(ours) > 3


def test_the_tree_is_what_the_definition_says(builds: Builds) -> None:
    tree = builds.docker_tree(builds.docker.images[TOP].reference)
    assert tree["var/run"].kind == "l"
    assert tree["run/through-a-link"].mode == "0o644"
    assert tree["root"].mode == "0o700"
    assert tree["etc/over-a-link"].kind == "-"
    assert tree["usr/local/bin/greet"].mode == "0o755"
    assert tree["srv/two words/file name"].kind == "-"
    assert (tree["srv/empty"].kind, tree["srv/link"].content) == ("d", "/etc/passwd")
    assert (tree["opt/quoted"].mode, tree["opt/quoted"].owner) == ("0o4750", (65520, 42))
    assert [name for name, _ in tree["opt/capable"].xattrs] == ["security.capability"]
    assert tree["opt/dir/fifo"].kind == "p"
    assert tree["opt/said"] == tree["opt/dir/hard"]
    assert "etc/munge/munge.key" not in tree


def configuration(image: dict[str, Any]) -> dict[str, Any]:
    keys = ("Entrypoint", "Cmd", "Labels", "StopSignal")
    chosen = {key: image.get(key) or None for key in keys}
    # The key of the default engine is over layers, and is no instruction for other builders.
    left_out = ("io.buildah.version", "org.cellblock.key")
    chosen["Labels"] = {name: text for name, text in image["Labels"].items() if name not in left_out}
    return {**chosen, "Env": sorted(image["Env"])}


@pytest.mark.parametrize("name", [ROOT, TOOL, TOP, CHILD])
def test_both_engines_configure_the_image_alike(builds: Builds, name: str) -> None:
    ours = builds.client.images.get(builds.docker.images[name].reference).attrs["Config"]
    inspect = ["buildah", "inspect", "--type", "image", builds.buildah.images[name].reference]
    done = subprocess.run(inspect, check=True, capture_output=True, text=True)
    assert configuration(ours) == configuration(json.loads(done.stdout)["OCIv1"]["config"])


def test_values_of_the_configuration_are_taken_as_they_are(builds: Builds) -> None:
    config = builds.client.images.get(builds.docker.images[TOP].reference).attrs["Config"]
    assert 'GREETING=two  words "or" \\ more' in config["Env"]
    assert config["Entrypoint"] == ["/bin/sh", "-c", 'echo "$0"']
    assert config["Cmd"] == ["one", "two words"]
    assert config["Labels"]["org.opencontainers.image.description"] == (
        'everything a step can do: $HOME, "quotes" and \\ included'
    )
    child = builds.client.images.get(builds.docker.images[CHILD].reference).attrs["Config"]
    assert not child["Entrypoint"]
    assert not child["Cmd"]


def test_no_layer_carries_what_only_the_build_needed_nor_a_key(builds: Builds) -> None:
    patterns = [*apt.LEFTOVERS, "etc/munge/munge.key"]
    found = []
    for layer in trees.overlay_layers(builds.client, builds.docker.images[CHILD].reference):
        for path, entry in trees.entries(Path(layer)).items():
            # A whiteout, which says that a file is gone, is a character device.
            if entry.kind != "c" and any(fnmatch.fnmatch(path, pattern) for pattern in patterns):
                found.append(path)
            if path in apt.IDENTITIES:
                assert Path(layer, path).read_bytes() == b""
    assert found == []


def test_steps_and_output_are_reported_while_building(builds: Builds) -> None:
    steps = {(event.subject, event.step) for event in builds.events if isinstance(event, StepStarted)}
    assert {(ROOT, "bootstrap"), (TOOL, "compile"), (TOP, "copy artifacts"), (TOP, "run")} <= steps
    assert any(step.startswith("install packages") for _, step in steps)
    lines = [event.line for event in builds.events if isinstance(event, Output) and event.subject == TOP]
    assert any("Setting up munge" in line for line in lines)
    assert not any(line.startswith((" ---> ", "Step ")) for line in lines)


def test_what_is_built_is_found_again_by_its_key(builds: Builds) -> None:
    again = build_images(builds.request(TOP), Events())
    assert again.built == ()
    assert again.images[TOP].id == builds.docker.images[TOP].id


def docker_build(builds: Builds, context: Path, *, buildkit: bool) -> dict[str, trees.Entry]:
    """The tree that `docker build` makes of the rendered context, with debs that are served here."""
    program = docker_commands().get("BuildKit" if buildkit else "classic")
    if program is None:
        pytest.skip("no docker command here has BuildKit (apt-get install docker-buildx)")
    with serve([builds.folder / "archive"], [builds.archive]) as sources:
        argv = [program, "build", "--network", "host", "--file", str(context / NAME), "--target", TOP]
        argv += ["--build-arg", f"{SOURCES_ARGUMENT}={sources[0]}", "--tag", f"by-hand:{buildkit:d}"]
        environment = {**os.environ, "DOCKER_BUILDKIT": f"{buildkit:d}"}
        done = subprocess.run(
            [*argv, str(context)], capture_output=True, text=True, env=environment, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return builds.docker_tree(f"by-hand:{buildkit:d}")


def buildah_build(builds: Builds, context: Path) -> dict[str, trees.Entry]:
    """The tree that `buildah build` makes of the rendered context, with debs that are mounted."""
    archive = builds.folder / "archive"
    sources = builds.archive.replace(f"//{archive}", "/mnt")
    argv = ["buildah", "build", "--layers", "--volume", f"{archive}:/mnt:ro", "--target", TOP]
    argv += ["--build-arg", f"{SOURCES_ARGUMENT}={sources}", "--tag", "localhost/by-hand"]
    done = subprocess.run([*argv, str(context)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with trees.buildah_root("localhost/by-hand") as root:
        return comparable(trees.entries(root))


@pytest.mark.parametrize("builder", ["buildah", "docker", "docker with BuildKit"])
def test_any_builder_makes_the_same_tree_of_the_rendered_containerfile(
    builds: Builds, context: Path, builder: str
) -> None:
    if builder == "buildah":
        tree = buildah_build(builds, context)
    else:
        tree = docker_build(builds, context, buildkit=builder != "docker")
    engines = builds.docker_tree(builds.docker.images[TOP].reference)
    assert trees.differences(tree, engines) == []
