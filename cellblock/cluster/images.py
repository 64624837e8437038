"""Brings the cluster's images to Docker, whose storage is not buildah's."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping

import docker
from docker.errors import ImageNotFound

from cellblock.errors import CellblockError
from cellblock.events import Events


def image_ids(client: docker.DockerClient, images: Mapping[str, str]) -> dict[str, str]:
    """Role -> image id in the engine of `client`. Raises CellblockError for an image it lacks."""
    ids = {}
    for role, reference in images.items():
        try:
            ids[role] = str(client.images.get(reference).id)
        except ImageNotFound as error:
            raise CellblockError(
                f"there is no image {reference} for role {role}", hint="build it: `build.py build`"
            ) from error
    return ids


def copy_to_docker(client: docker.DockerClient, images: Mapping[str, str], events: Events) -> None:
    """Copy the images that Docker lacks, or has another build of, from buildah's storage.

    Each copy is a step with its time. Raises CellblockError when skopeo is missing or fails.
    """
    if shutil.which("skopeo") is None:
        raise CellblockError(
            "skopeo is not installed, and it copies images to Docker", hint="apt-get install skopeo"
        )
    for role, reference in images.items():
        source, target = f"containers-storage:{reference}", f"docker-daemon:{reference}"
        if _config(source) == _docker_config(client, reference):
            continue
        started = time.monotonic()
        with events.step(role, "copy the image to Docker"):
            _skopeo("copy", "--quiet", source, target)
        events.info(f"{role}: copied {reference} to Docker in {time.monotonic() - started:.1f} s")


def _config(source: str) -> object:
    """Labels and layers of an image: what tells two builds of a reference apart in any engine."""
    config = json.loads(_skopeo("inspect", "--config", source))
    return config.get("config", {}).get("Labels"), config["rootfs"]["diff_ids"]


def _docker_config(client: docker.DockerClient, reference: str) -> object:
    try:
        found = client.images.get(reference)
    except ImageNotFound:
        return None
    return found.labels or None, found.attrs["RootFS"]["Layers"]


def _skopeo(*arguments: str) -> str:
    argv = ["skopeo", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise CellblockError(
            f"`{' '.join(argv)}` failed: {done.stderr.strip()[-1000:]}",
            hint="build the images first: `build.py build`; is Docker running, with room for them?",
        )
    return done.stdout
