# SPDX-License-Identifier: Apache-2.0
"""Makes OCI layouts entry by entry (image-spec 1.1), so that each kind of entry and whiteout occurs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MTIME = 1_700_000_000
MEDIA = "application/vnd.oci.image.layer.v1.tar"


class LayerTar:
    """One layer, in memory."""

    def __init__(self) -> None:
        self._data = io.BytesIO()
        # GNU's form: it holds names that are no text, and long ones.
        self._tar = tarfile.open(fileobj=self._data, mode="w", format=tarfile.GNU_FORMAT)  # noqa: SIM115

    def add(
        self, name: str | bytes, kind: bytes, *, mode: int, target: str = "", data: bytes = b"", **more: int
    ) -> None:
        text = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
        info = tarfile.TarInfo(text)
        info.type, info.mode, info.linkname, info.size = kind, mode, target, len(data)
        info.mtime, info.uid, info.gid = MTIME, 1000, 1000
        info.devmajor, info.devminor = more.get("major", 0), more.get("minor", 0)
        self._tar.addfile(info, io.BytesIO(data))

    def file(self, name: str | bytes, data: bytes = b"", mode: int = 0o644) -> None:
        self.add(name, tarfile.REGTYPE, mode=mode, data=data)

    def folder(self, name: str | bytes, mode: int = 0o755) -> None:
        self.add(name, tarfile.DIRTYPE, mode=mode)

    def symlink(self, name: str, target: str) -> None:
        self.add(name, tarfile.SYMTYPE, mode=0o777, target=target)

    def hardlink(self, name: str, target: str) -> None:
        self.add(name, tarfile.LNKTYPE, mode=0o644, target=target)

    def with_xattrs(self, name: str, data: bytes, xattrs: Mapping[str, bytes]) -> None:
        """A file with extended attributes, as GNU tar and buildah write them."""
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(data), 0o755, MTIME
        records = b""
        for key, value in xattrs.items():
            body = b" SCHILY.xattr." + key.encode() + b"=" + value + b"\n"
            length = len(body) + 1
            while length != len(str(length)) + len(body):
                length = len(str(length)) + len(body)
            records += str(length).encode() + body
        header = tarfile.TarInfo("pax")
        header.type, header.size = b"x", len(records)
        self._tar.addfile(header, io.BytesIO(records))
        self._tar.addfile(info, io.BytesIO(data))

    def finish(self) -> bytes:
        self._tar.close()
        return self._data.getvalue()


def compressed(tar: bytes, how: str) -> tuple[bytes, str]:
    """The bytes, and what their media type ends with."""
    if how == "gzip":
        return gzip.compress(tar, 1, mtime=0), "+gzip"
    if how == "zstd":
        return subprocess.run(
            ["zstd", "-q", "-1"], input=tar, stdout=subprocess.PIPE, check=True
        ).stdout, "+zstd"
    return tar, ""


def write_layout(
    folder: Path,
    layers: Sequence[bytes],
    *,
    how: str = "gzip",
    config: Mapping[str, Any] | None = None,
    tag: str = "test",
) -> Path:
    """The layers, the bottom one first, as the image `tag`."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def store(data: bytes, media: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    stored = [(compressed(layer, how)) for layer in layers]
    document = {
        "architecture": "amd64",
        "os": "linux",
        "created": "2026-01-01T00:00:00Z",
        "config": config or {},
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers],
        },
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": store(json.dumps(document).encode(), "application/vnd.oci.image.config.v1+json"),
        "layers": [store(data, MEDIA + suffix) for data, suffix in stored],
    }
    described = store(json.dumps(manifest).encode(), manifest["mediaType"])  # type: ignore[arg-type]
    index = {
        "schemaVersion": 2,
        "manifests": [{**described, "annotations": {"org.opencontainers.image.ref.name": tag}}],
    }
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (folder / "index.json").write_text(json.dumps(index))
    return folder


CAPABILITY = bytes.fromhex("0100000202200000000000000000000000000000")
"""security.capability of cap_net_raw,cap_net_admin=ep, in version 2 (capabilities(7))."""


def every_kind() -> list[bytes]:
    """Three layers with every kind of entry, and every kind of whiteout, that a builder may write."""
    bottom = LayerTar()
    for name in ("a", "opaque", "opaque/below", "gone", "gone/deep", "becomes-file", "dev", "n"):
        bottom.folder(name)
    bottom.folder("closed", 0o000)
    bottom.folder("sticky", 0o1777)
    for name in (
        "a/kept",
        "a/hidden",
        "a/replaced",
        "opaque/old",
        "opaque/below/old",
        "gone/deep/file",
        "again",
    ):
        bottom.file(name, name.encode() * 100)
    bottom.file("becomes-file/inner", b"x")
    bottom.file("becomes-folder", b"x")
    # A directory, something else, a directory again: it begins afresh.
    bottom.folder("twice")
    bottom.file("twice/old", b"x")
    bottom.file("setuid", b"#!/bin/sh\n", 0o4755)
    bottom.file("unreadable", b"secret", 0o000)
    bottom.file("empty")
    bottom.file("long", bytes(range(256)) * 4096)  # 1 MiB
    bottom.file("zeros", bytes(700_000))
    bottom.file("zeros-and-end", bytes(600_000) + b"end")
    bottom.file(b"n/\xff\xfe not text", b"bytes")
    bottom.file("n/ünïcode", b"text")
    bottom.file("n/" + "l" * 255, b"long name")
    bottom.file("/".join(["n", *["d" * 50] * 12, "far"]), b"long path")
    bottom.symlink("absolute", "/a/kept")
    bottom.symlink("becomes-real", "a")
    bottom.symlink("long-link", "t" * 1000)
    bottom.hardlink("a/second", "a/kept")
    bottom.hardlink("linked-hidden", "a/hidden")
    bottom.add("fifo", tarfile.FIFOTYPE, mode=0o600)
    bottom.add("dev/null", tarfile.CHRTYPE, mode=0o666, major=1, minor=3)
    bottom.symlink("dev/fd", "/proc/self/fd")
    bottom.add("n/null", tarfile.CHRTYPE, mode=0o666, major=1, minor=3)
    bottom.add("n/big", tarfile.BLKTYPE, mode=0o660, major=259, minor=70000)
    bottom.with_xattrs("ping", b"program", {"security.capability": CAPABILITY, "user.comment": b"\x00\xff"})
    bottom.with_xattrs("ping6", b"program", {"security.capability": CAPABILITY, "user.comment": b"\x00\xff"})
    middle = LayerTar()
    middle.file("a/.wh.hidden")
    middle.file("a/replaced", b"new", 0o600)
    middle.folder("opaque")
    middle.file("opaque/.wh..wh..opq")
    middle.file("opaque/new", b"new")
    middle.file(".wh.gone")
    middle.file(".wh.becomes-file")
    middle.file("becomes-file", b"a file now")
    middle.file(".wh.becomes-folder")
    middle.folder("becomes-folder")
    middle.file("becomes-folder/inner", b"inner")
    middle.file("twice", b"not for long")
    middle.file(".wh.again")
    middle.file(".wh.becomes-real")
    middle.folder("becomes-real")
    middle.file("becomes-real/file", b"real")
    middle.hardlink("third", "a/kept")  # a file of the layer below
    middle.file(".wh..wh.plnk", b"a note of aufs")
    top = LayerTar()
    top.file("again", b"again")
    top.folder("a", 0o750)
    top.file("a/top", b"top")
    top.folder("twice")
    top.file("twice/new", b"new")
    top.folder("gone")
    top.file("gone/new", b"new")
    return [bottom.finish(), middle.finish(), top.finish()]
