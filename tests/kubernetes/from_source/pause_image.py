# SPDX-License-Identifier: Apache-2.0
"""Makes the image `pause`, whose container holds a pod's namespaces; make-kubernetes calls it.

usage: pause_image.py PROGRAM ARCHIVE
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from hashlib import sha256
from pathlib import Path

NAME = "localhost/pause:1"


def image(program: bytes) -> bytes:
    """An archive of an image that has one program, as `docker save` writes it."""
    layer = _packed({"pause": program}, 0o755)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    texts = {"config.json": json.dumps(config).encode(), "manifest.json": json.dumps(manifest).encode()}
    return _packed({"layer.tar": layer, **texts}, 0o644)


def _packed(files: dict[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(image(Path(sys.argv[1]).read_bytes()))
