# SPDX-License-Identifier: Apache-2.0
"""Loads built images into the storage that buildah and podman share, from which they are run.

It calls buildah's command line and uses only options that its versions 1.23 to 1.41 have.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any

from cellblock.engine import skopeo
from cellblock.engine.recipe import BuiltImage
from cellblock.errors import CellblockError
from cellblock.oci.layout import Layout, StoredImage
from cellblock.process import Finished, ProgramFailed, Programs
from cellblock.retries import retrying


class ContainersStorage:
    """The images that buildah, podman and skopeo see (containers-storage)."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs

    def images(self) -> Mapping[str, BuiltImage]:
        """All images, by each of their references.

        Raises CellblockError when buildah is missing or its storage cannot be read.
        """
        if shutil.which("buildah") is None:
            raise CellblockError("buildah is not installed", hint="run `python3 build.py doctor`")
        images: dict[str, BuiltImage] = {}
        for image in _json_list(self._list()):
            for name in image.get("names") or ():
                images[name] = BuiltImage(name, image["id"], _bytes(image["size"]), image["created"])
        return images

    def _list(self) -> str:
        # It reads one image after the other, and fails when another process removes one meanwhile.
        done: Finished = retrying(ProgramFailed, 6)(self._programs.run, ["buildah", "images", "--json"])
        return done.output

    def load(self, layout: Layout, name: str, reference: str) -> None:
        """Have the image `name` of `layout` under `reference`; layers that are there are not copied again."""
        skopeo.copy(
            f"oci:{layout.folder}:{name}",
            f"containers-storage:{reference}",
            programs=self._programs,
            hint="see `podman info`: is there room in its storage?",
        )

    def remove(self, reference: str) -> bool:
        """Take a reference away, and the image with its last one; False when it is in use."""
        return self._programs.run(["buildah", "rmi", reference], check=False).status == 0


def image_id(image: StoredImage) -> str:
    """The id by which containers-storage and Docker know an image: its configuration's digest."""
    return image.manifest.config.digest.removeprefix("sha256:")


def _json_list(text: str) -> list[dict[str, Any]]:
    """What buildah's --json printed; it prints `null` for none."""
    return json.loads(text or "null") or []


def _bytes(text: str) -> int:
    """The size that `buildah images` prints ("118 MB", decimal units), in bytes."""
    number, unit = text.split()
    scale = {"B": 1, "bytes": 1, "KB": 10**3, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    return int(float(number) * scale.get(unit, 1))
