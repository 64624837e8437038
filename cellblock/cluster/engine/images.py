# SPDX-License-Identifier: Apache-2.0
"""Finds the ids of the cluster's images, and copies the images to Docker's own storage.

Built images are in the storage of podman and buildah, which Docker does not read.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from cellblock.engine import docker as docker_engine
from cellblock.engine import skopeo
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.process import Programs

# /tmp may be in memory.
_ROOM = "/var/tmp"
_HINT = "build the images first: `build.py build`; is Docker running, with room for them?"


def image_ids(client: docker.DockerClient, images: Mapping[str, str]) -> dict[str, str]:
    """Image -> its id in the engine of `client`. Raises CellblockError for an image it lacks."""
    ids = {}
    for name, reference in images.items():
        try:
            ids[name] = str(client.images.get(reference).id)
        except ImageNotFound as error:
            raise CellblockError(
                f"there is no image {reference}", hint="build it: `build.py build`"
            ) from error
    return ids


def copy_to_docker(client: docker.DockerClient, images: Mapping[str, str], events: Events) -> None:
    """Copy the images that Docker lacks, or has another build of, from buildah's storage.

    Each copy is a step with its time. Raises CellblockError when skopeo is missing or fails.
    """
    programs = Programs()
    for name, reference in images.items():
        source, target = f"containers-storage:{reference}", f"docker-daemon:{reference}"
        if _config(source, programs) == _docker_config(client, reference):
            continue
        started = time.monotonic()
        with events.step(name, "copy the image to Docker"):
            _copy(source, target, programs)
        events.info(f"{name}: copied {reference} to Docker in {time.monotonic() - started:.1f} s")


def _copy(source: str, target: str, programs: Programs) -> None:
    """Copy by way of a folder: skopeo 1.9 refuses Docker what was once packed with zstd."""
    with tempfile.TemporaryDirectory(prefix="cellblock-image-", dir=_ROOM) as folder:
        skopeo.copy(source, f"dir:{folder}", "--dest-decompress", programs=programs, hint=_HINT)
        manifest = Path(folder, "manifest.json")
        manifest.write_text(
            manifest.read_text(encoding="utf-8").replace(".tar+zstd", ".tar"), encoding="utf-8"
        )
        # skopeo does not look at DOCKER_HOST.
        daemon = f"--dest-daemon-host={docker_engine.address()}"
        skopeo.copy(f"dir:{folder}", target, daemon, programs=programs, hint=_HINT)


def _config(source: str, programs: Programs) -> object:
    """Labels and layers of an image: what tells two builds of a reference apart in any engine."""
    config = skopeo.configuration(source, programs=programs, hint=_HINT)
    return config.get("config", {}).get("Labels"), config["rootfs"]["diff_ids"]


def _docker_config(client: docker.DockerClient, reference: str) -> object:
    try:
        found = client.images.get(reference)
    except ImageNotFound:
        return None
    return found.labels or None, found.attrs["RootFS"]["Layers"]
