# SPDX-License-Identifier: Apache-2.0
"""Makes archives as `docker save` writes them (manifest.json), with any number of images."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def docker_archive(
    path: Path,
    images: Mapping[str, Sequence[bytes]],
    *,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """The layers of each image, the bottom one first, by the image's name and tag.

    A layer that images share is there once; where it is needed again stands a link, as docker writes it.
    """
    names: dict[str, str] = {}
    manifest = []
    with tarfile.open(path, "w") as tar:

        def add(name: str, data: bytes) -> None:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))

        for number, (tag, layers) in enumerate(images.items()):
            files = []
            for index, layer in enumerate(layers):
                name = f"{number}{index}/layer.tar"
                digest = hashlib.sha256(layer).hexdigest()
                if digest in names:
                    link = tarfile.TarInfo(name)
                    link.type, link.linkname = tarfile.SYMTYPE, f"../{names[digest]}"
                    tar.addfile(link)
                else:
                    names[digest] = name
                    add(name, layer)
                files.append(name)
            diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
            document = {
                "architecture": "amd64",
                "os": "linux",
                "created": "2026-01-01T00:00:00Z",
                "config": {"Env": [f"IMAGE={number}"], **(config or {})},
                "rootfs": {"type": "layers", "diff_ids": diff_ids},
            }
            add(f"{number}.json", json.dumps(document).encode())
            manifest.append({"Config": f"{number}.json", "RepoTags": [tag], "Layers": files})
        add("manifest.json", json.dumps(manifest).encode())
    return path
