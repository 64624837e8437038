# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the docker engine: a dockerd of their own, and definitions that it builds."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from cellblock import paths
from cellblock.bench.harness.dockerd import private_dockerd
from cellblock.build import BuildRequest, build_images
from cellblock.build.containerfile import RenderRequest, rendered
from cellblock.events import Event, Events
from tests.integration.archive import make_archive
from tests.integration.docker_engine.builds import DEFINITIONS, TOP, VARIANT, Builds, lay_files


@pytest.fixture(scope="package")
def memory() -> Iterator[Path]:
    """A file system that syncs nothing: what is built here is thrown away."""
    folder = Path(tempfile.mkdtemp(prefix="cellblock-dockertest-", dir="/var/tmp"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g,mode=755", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()


@pytest.fixture(scope="package")
def environment(memory: Path) -> Iterator[pytest.MonkeyPatch]:
    """Storage, cache and daemon of these tests' own."""
    storage = memory / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{memory}/graph"\nrunroot = "{memory}/run"\n'
    )
    with pytest.MonkeyPatch.context() as patch, private_dockerd(memory / "docker") as address:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
        patch.setenv("CELLBLOCK_CACHE", str(memory / "cache"))
        patch.setenv("DOCKER_HOST", address)
        patch.setenv("BUILDAH_ISOLATION", "chroot")
        yield patch


@pytest.fixture(scope="package")
def builds(memory: Path, environment: pytest.MonkeyPatch) -> Iterator[Builds]:
    definitions = memory / "images"
    definitions.mkdir()
    shutil.copy(paths.PROJECT / "images" / "variants.yaml", definitions)
    for name, text in DEFINITIONS.items():
        (definitions / name).mkdir()
        (definitions / name / "image.yaml").write_text(text.lstrip())
    lay_files(definitions / TOP / "files")
    archive = make_archive(
        memory / "archive",
        suite="trixie",
        components=("main",),
        packages=("apt", "passwd", "munge", "libcap2-bin"),
    )
    seen: list[Event] = []
    events = Events()
    events.subscribe(seen.append)
    asked = BuildRequest((), VARIANT, (archive,), engine="docker", definitions=definitions)
    by_docker = build_images(asked, events)
    by_buildah = build_images(
        BuildRequest((), VARIANT, (archive,), definitions=definitions, load=True), Events()
    )
    client = docker.DockerClient(base_url=os.environ["DOCKER_HOST"])
    yield Builds(definitions, archive, memory, client, by_docker, by_buildah, seen)
    client.close()


@pytest.fixture(scope="package")
def context(builds: Builds) -> Path:
    folder = builds.folder / "context"
    asked = RenderRequest((TOP,), VARIANT, (builds.archive,), builds.definitions)
    with rendered(asked) as file:
        file.write(folder, Events())
    return folder
