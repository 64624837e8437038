# SPDX-License-Identifier: Apache-2.0
"""Makes small images in a layout, from layers whose entries a test lists."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zstandard

from cellblock.oci.layout import Layout, StoredImage
from cellblock.oci.model import (
    CONFIG,
    LAYER_GZIP,
    LAYER_TAR,
    LAYER_ZSTD,
    Configuration,
    Descriptor,
    Manifest,
    Platform,
    digest_of_bytes,
)

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    LAYER_TAR: bytes,
    LAYER_GZIP: lambda data: gzip.compress(data, mtime=0),
    LAYER_ZSTD: zstandard.ZstdCompressor().compress,
}


def member(
    path: str,
    content: bytes | str | None = None,
    *,
    link: str = "",
    hard: str = "",
    mode: int | None = None,
    owner: tuple[int, int] = (0, 0),
    device: tuple[int, int] | None = None,
    xattrs: dict[str, bytes] | None = None,
) -> tuple[tarfile.TarInfo, bytes]:
    """A file with `content`; without it a directory, or what `link`, `hard` or `device` makes it."""
    info = tarfile.TarInfo(path)
    info.uid, info.gid = owner
    data = content.encode() if isinstance(content, str) else content or b""
    if link:
        info.type, info.linkname = tarfile.SYMTYPE, link
    elif hard:
        info.type, info.linkname = tarfile.LNKTYPE, hard
    elif device:
        info.type = tarfile.CHRTYPE
        info.devmajor, info.devminor = device
    elif content is None:
        info.type = tarfile.DIRTYPE
    info.size = len(data)
    info.mode = mode if mode is not None else 0o755 if info.isdir() else 0o644
    for name, value in (xattrs or {}).items():
        info.pax_headers[f"SCHILY.xattr.{name}"] = value.decode("utf-8", "surrogateescape")
    return info, data


def layer_bytes(members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """The members as an uncompressed tar."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def make_image(
    layout: Layout,
    name: str,
    *layers: Sequence[tuple[tarfile.TarInfo, bytes]],
    media_type: str = LAYER_GZIP,
    settings: Mapping[str, Any] | None = None,
    history: Sequence[str] = (),
) -> StoredImage:
    """An image of `layers`, the lowest first, under `name`; `history`: the commands that made it."""
    tars = [layer_bytes(layer) for layer in layers]
    blobs = tuple(layout.write(COMPRESSORS[media_type](tar), media_type) for tar in tars)
    diff_ids = tuple(digest_of_bytes(tar) for tar in tars)
    steps = tuple({"created_by": command} for command in history)
    platform = Platform("linux", "amd64")
    configuration = Configuration(platform, diff_ids, settings or {}, "1970-01-01T00:00:00Z", steps)
    data = configuration.to_bytes()
    config = Descriptor(CONFIG, digest_of_bytes(data), len(data))
    return layout.add(Manifest(config, blobs), configuration, [name])
