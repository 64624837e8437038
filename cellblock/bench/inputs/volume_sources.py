# SPDX-License-Identifier: Apache-2.0
"""Makes what the benchmark of jail volumes reads: a copy of this machine's /usr, and images of it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.files.sha256 import sha256_of_file
from cellblock.oci.layout_reader import ARCHITECTURES
from cellblock.oci.model import MANIFEST, Configuration, Descriptor, Index, Manifest, Platform

FILES, BYTES = 45_000, 1_400_000_000
TAR = ("tar", "--format=posix", "--xattrs", "--xattrs-include=*")
_LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"
_TAKEN = ("share/doc", "share/man", "include", "share/locale", "share/icons", "lib/python3", "bin", "lib")


def make_tree(root: Path) -> tuple[int, int]:
    """Copy directories of /usr until there are FILES files of BYTES bytes, under other names if need be."""
    counted = total = 0
    for again in range(9):
        for source in _folders():
            target = root / f"usr{again or ''}" / source.relative_to("/usr")
            if target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", str(source), str(target)], check=True)
            for path, _, names in os.walk(target):
                counted += len(names)
                total += sum(os.lstat(os.path.join(path, each)).st_size for each in names)  # noqa: PTH118
            if counted >= FILES and total >= BYTES:
                return counted, total
    raise CellblockError(
        "/usr is too small to make a jail of", hint="run this on a machine with more packages"
    )


def _folders() -> Iterator[Path]:
    """Those of many small files first; piece by piece, so that the tree is not much larger than asked."""
    for name in _TAKEN:
        source = Path("/usr", name)
        if source.is_dir():
            yield from (one for one in sorted(source.iterdir()) if one.is_dir() and not one.is_symlink())
            if name == "bin":
                yield source


def assemble_command(source: str, target: Path) -> list[str]:
    """`jail assemble SOURCE TARGET`, as a program of its own."""
    return [sys.executable, "-m", "cellblock.cli", "jail", "assemble", source, str(target), "--log", "json"]


def make_sources(tree: Path, work: Path) -> Layout:
    """The tree as work/tree.tar, the layout work/layout, and where restic is here, work/repository."""
    archive = work / "tree.tar"
    subprocess.run([*TAR, "-C", str(tree), "-cf", str(archive), "."], check=True)
    layout = Layout(work / "layout")
    layout.add("old", archive)
    if shutil.which("restic"):
        restic = ["restic", "-q", "-r", str(work / "repository"), "--no-cache"]
        environment = {**os.environ, "RESTIC_PASSWORD": "bench"}
        subprocess.run([*restic, "init"], check=True, env=environment)
        subprocess.run([*restic, "backup", "."], check=True, env=environment, cwd=tree)
    return layout


class Layout:
    """An OCI layout whose layers are compressed as `build.py build` does by default."""

    def __init__(self, folder: Path) -> None:
        """Make an empty one."""
        self.folder = folder
        self._blobs = folder / "blobs/sha256"
        self._blobs.mkdir(parents=True)
        self._images: list[Descriptor] = []
        self._layers: dict[Path, tuple[Descriptor, str]] = {}
        (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))

    def add(self, tag: str, *layers: Path, settings: Sequence[str] = ()) -> None:
        """Add the image `tag` of tars, the lowest first; with other `settings` it is another image."""
        found = [self._layer(archive) for archive in layers]
        machine = ARCHITECTURES.get(platform.machine(), platform.machine())
        configuration = Configuration(
            Platform("linux", machine), tuple(diff_id for _, diff_id in found), {"Env": list(settings)}
        )
        config = self._stored(configuration.to_bytes(), "application/vnd.oci.image.config.v1+json")
        manifest = Manifest(config, tuple(layer for layer, _ in found))
        image = self._stored(manifest.to_bytes(), MANIFEST)
        named = {"org.opencontainers.image.ref.name": tag}
        self._images.append(Descriptor(image.media_type, image.digest, image.size, annotations=named))
        (self.folder / "index.json").write_bytes(Index(tuple(self._images)).to_bytes())

    def largest(self) -> Path:
        """The file of the largest layer."""
        return max(self._blobs.iterdir(), key=lambda path: path.stat().st_size)

    def _layer(self, archive: Path) -> tuple[Descriptor, str]:
        if archive not in self._layers:
            layer = self.folder / "layer"
            subprocess.run(["zstd", "-q", "-3", "-T0", str(archive), "-o", str(layer)], check=True)
            digest, size = sha256_of_file(layer), layer.stat().st_size
            layer.rename(self._blobs / digest)
            found = Descriptor(_LAYER, f"sha256:{digest}", size)
            self._layers[archive] = found, f"sha256:{sha256_of_file(archive)}"
        return self._layers[archive]

    def _stored(self, data: bytes, media_type: str) -> Descriptor:
        digest = hashlib.sha256(data).hexdigest()
        (self._blobs / digest).write_bytes(data)
        return Descriptor(media_type, f"sha256:{digest}", len(data))
