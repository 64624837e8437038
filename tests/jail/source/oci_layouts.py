# SPDX-License-Identifier: Apache-2.0
"""Writes layers and OCI layouts by hand, for tests of sources."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

Member = tuple[str, str]


def layer(path: Path, *members: Member) -> Path:
    """A tar of (name, content): content `/` is a directory, `->X` a symlink, `=X` a hard link."""
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if content == "/":
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            elif content.startswith("->"):
                info.type, info.linkname = tarfile.SYMTYPE, content[2:]
            elif content.startswith("="):
                info.type, info.linkname = tarfile.LNKTYPE, content[1:]
            else:
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content.encode()) if info.size else None)
    return path


class Layout:
    """An OCI layout, written by hand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    def image(self, *layers: bytes, tag: str) -> dict[str, object]:
        labels = {"org.cellblock.key": "k1", "org.cellblock.slurm": "24.11"}
        config = self.blob(json.dumps({"config": {"Labels": labels}, "tag": tag}).encode())
        manifest = {"config": config, "layers": [self.blob(data) for data in layers]}
        found = self.blob(json.dumps(manifest).encode())
        return {**found, "annotations": {"org.opencontainers.image.ref.name": tag}}

    def index(self, *descriptors: dict[str, object]) -> None:
        (self.folder / "index.json").write_text(json.dumps({"manifests": descriptors}))
