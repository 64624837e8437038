# SPDX-License-Identifier: Apache-2.0
"""Makes the images that `bench enroot` and `bench pyxis` import: `base`, and `big`, as one for PyTorch.

They have files of this machine's Debian packages in layers of gzip -6, as an OCI layout (OCI image-spec 1.1).
Programs and texts shrink to a third. Images for machine learning shrink to six tenths only, because weights
do not compress: `big` has 31 files of random bytes for them. Both have what container runtimes ask of an
image: a shell, accounts and mount points. The images are made once and kept below CELLBLOCK_CACHE.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cellblock import paths
from cellblock.errors import CellblockError

FORM = 4
"""Counts up when the images change: a kept one is of this form."""


@dataclass(frozen=True)
class Shape:
    """What an image is like; sizes in bytes, decompressed."""

    name: str
    size: int
    files: int
    layers: int
    random: int
    """Bytes of it that do not shrink."""


SHAPES = (
    Shape("base", 126_000_000, 6_000, 1, 0),
    Shape("big", 1_500_000_000, 51_000, 8, 496_000_000),
)
RANDOM_FILE = 16_000_000
LARGEST = 64_000_000
"""No single file is larger: a few debug files would be most of an image."""

PROGRAMS = ("/usr/bin/true", "/usr/bin/sleep", "/usr/bin/sh", "/usr/bin/bash")
SKELETON = (
    *("dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "tmp", "var", "var/tmp"),
    *("etc/passwd", "etc/group"),
)
"""Directories without what is in them, and files; Charliecloud starts nothing in a root without accounts."""


@dataclass(frozen=True)
class Blob:
    """A file of the layout."""

    digest: str
    size: int
    diff_id: str = ""


def layout() -> Path:
    """The layout with the tags `base` and `big`, made when it is not there (about a minute on two cores)."""
    folder = paths.cache() / "bench" / f"enroot-images-{FORM}"
    if not (folder / "index.json").exists():
        draft = folder.with_suffix(f".{os.getpid()}")
        shutil.rmtree(draft, ignore_errors=True)
        (draft / "blobs/sha256").mkdir(parents=True)
        try:
            _make(draft)
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder


def _make(folder: Path) -> None:
    manifests = [_make_image(folder, shape) for shape in SHAPES]
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    }
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(json.dumps(index))


def _make_image(folder: Path, shape: Shape) -> dict[str, object]:
    parts: list[list[str]] = [[] for _ in range(shape.layers)]
    share = (shape.size - shape.random) / shape.layers
    total = 0
    for path, size in _chosen(shape):
        parts[min(int(total / share), shape.layers - 1)].append(path)
        total += size
    needed = {path for program in PROGRAMS for path in _program(program)}
    parts[-1] += sorted({*needed, *SKELETON} - set(parts[-1]))
    weights = folder / "weights"
    weights.mkdir()
    source = random.Random(shape.name)
    for i in range(shape.random // RANDOM_FILE):
        (weights / f"weights-{i}").write_bytes(source.randbytes(RANDOM_FILE))
        os.utime(weights / f"weights-{i}", (1_700_000_000, 1_700_000_000))
        parts[1 + i % (shape.layers - 1)].append(f"{weights}/weights-{i}".lstrip("/"))
    with ThreadPoolExecutor(2) as pool:
        layers = list(pool.map(lambda part: _layer(folder, part), parts))
    shutil.rmtree(weights)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": "2026-01-01T00:00:00Z",
        "config": {"Env": ["PATH=/usr/bin:/bin"], "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        # Charliecloud takes no image without.
        "history": [{"created_by": "bench"} for _ in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor("config.v1+json", _document(folder, config)),
        "layers": [_descriptor("layer.v1.tar+gzip", layer) for layer in layers],
    }
    described = _descriptor("manifest.v1+json", _document(folder, manifest))
    return {**described, "annotations": {"org.opencontainers.image.ref.name": shape.name}}


def _descriptor(kind: str, blob: Blob) -> dict[str, object]:
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": blob.digest, "size": blob.size}


def _document(folder: Path, document: object) -> Blob:
    data = json.dumps(document).encode()
    digest = hashlib.sha256(data).hexdigest()
    (folder / "blobs/sha256" / digest).write_bytes(data)
    return Blob(f"sha256:{digest}", len(data))


def _chosen(shape: Shape) -> Iterator[tuple[str, int]]:
    """Files below / without the leading "/", of such sizes that their number and all bytes come out right."""
    found = sorted(_files())
    wanted = (shape.size - shape.random) / shape.files
    # A stride through all files keeps the mix of kinds; without the largest the mean comes out right.
    step = max(1, len(found) // shape.files)
    chosen = found[::step][: shape.files]
    limit = LARGEST
    while limit > 4096 and sum(size for _, size in chosen if size <= limit) / shape.files > wanted:
        limit = limit * 9 // 10
    chosen = [one for one in chosen if one[1] <= limit]
    missing = shape.size - shape.random - sum(size for _, size in chosen)
    taken = {path for path, _ in chosen}
    for path, size in sorted(found, key=lambda one: (-one[1], one[0])):
        if size <= min(missing, LARGEST) and path not in taken:
            chosen.append((path, size))
            missing -= size
    yield from sorted(chosen)


def _files() -> Iterator[tuple[str, int]]:
    for folder, folders, names in os.walk("/usr"):
        folders.sort()
        for name in names:
            path = Path(folder, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST:
                yield str(path).lstrip("/"), status.st_size


def _program(path: str) -> list[str]:
    """What a dynamic program needs to run, without the leading "/": libraries, its loader, links to them."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    needed = {path, *(word for word in said.split() if word.startswith("/"))}
    links = {name for name in ("/bin", "/lib", "/lib64") if Path(name).is_symlink()}
    # Below a directory that is a link, where that leads; and what the name itself is a link to.
    places = {str(Path(name).parent.resolve() / Path(name).name) for name in needed}
    return sorted(name.lstrip("/") for name in links | places | {os.path.realpath(name) for name in places})


def _layer(folder: Path, names: list[str]) -> Blob:
    """A tar of the files through gzip -6, both hashed on the way."""
    draft = folder / f"layer-{threading.get_ident()}"
    command = [
        "tar",
        "--create",
        "--no-recursion",
        "--directory=/",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]
    listed = "\0".join(names).encode()
    inner, outer = hashlib.sha256(), hashlib.sha256()
    with (
        subprocess.Popen(
            [*command, "--null", "--files-from=-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as tar,
        subprocess.Popen(["gzip", "-6", "-n"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as gzip,
        draft.open("wb") as output,
    ):
        assert tar.stdin
        assert tar.stdout
        assert gzip.stdin
        assert gzip.stdout
        feeding = threading.Thread(target=_feed, args=(tar.stdin, listed))
        passing = threading.Thread(target=_pass, args=(tar.stdout, gzip.stdin, inner))
        feeding.start()
        passing.start()
        while block := gzip.stdout.read(1 << 20):
            outer.update(block)
            output.write(block)
        feeding.join()
        passing.join()
    if tar.returncode or gzip.returncode:
        raise CellblockError("a layer of the benchmark's images could not be made", hint="is the disk full?")
    digest = outer.hexdigest()
    size = draft.stat().st_size
    draft.rename(folder / "blobs/sha256" / digest)
    return Blob(f"sha256:{digest}", size, f"sha256:{inner.hexdigest()}")


def _feed(to: IO[bytes], data: bytes) -> None:
    with to:
        to.write(data)


def _pass(source: IO[bytes], to: IO[bytes], digest: hashlib._Hash) -> None:
    with to:
        while block := source.read(1 << 20):
            digest.update(block)
            to.write(block)
