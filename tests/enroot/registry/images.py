# SPDX-License-Identifier: Apache-2.0
"""Makes images from bytes and pushes them by plain HTTP, without Cellblock's own code."""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import io
import json
import random
import ssl
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True)
class Blob:
    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        return digest_of(self.data)

    @property
    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "size": len(self.data), "digest": self.digest}


@dataclass(frozen=True)
class Image:
    """A manifest, with what it refers to."""

    manifest: Blob
    config: Blob
    layers: tuple[Blob, ...]
    """The bottom one first, as in the manifest."""
    diff_ids: tuple[str, ...]

    @property
    def digest(self) -> str:
        return self.manifest.digest


def layer_bytes(number: int, size: int) -> bytes:
    """A tar of one file of about `size` bytes that do not compress."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(f"file{number}")
        data = random.Random(number).randbytes(size)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def make_image(
    sizes: Sequence[int] = (1000,), *, docker: bool = False, architecture: str = "amd64", variant: str = ""
) -> Image:
    """One layer for each size; the content differs by architecture in nothing but the configuration."""
    tars = [layer_bytes(number, size) for number, size in enumerate(sizes)]
    return image_of(tars, docker=docker, architecture=architecture, variant=variant)


def image_of(
    tars: Sequence[bytes],
    *,
    docker: bool = False,
    architecture: str = "amd64",
    variant: str = "",
    config: Mapping[str, Any] | None = None,
) -> Image:
    """Of these layers, the bottom one first."""
    layer_type = DOCKER_LAYER if docker else OCI_LAYER
    layers = tuple(Blob(layer_type, gzip.compress(each, 1, mtime=0)) for each in tars)
    diff_ids = tuple(digest_of(each) for each in tars)
    platform = {"architecture": architecture, "os": "linux", **({"variant": variant} if variant else {})}
    rootfs = {"type": "layers", "diff_ids": diff_ids}
    settings = Blob(
        DOCKER_CONFIG if docker else OCI_CONFIG,
        json.dumps({**platform, "config": config or {"Cmd": ["sh"]}, "rootfs": rootfs}).encode(),
    )
    document = {
        "schemaVersion": 2,
        "mediaType": DOCKER_MANIFEST if docker else OCI_MANIFEST,
        "config": settings.descriptor,
        "layers": [each.descriptor for each in layers],
    }
    manifest = Blob(str(document["mediaType"]), json.dumps(document).encode())
    return Image(manifest, settings, layers, diff_ids)


def make_index(images: Mapping[str, Image], *, docker: bool = False) -> Blob:
    """An index of images by platform, "linux/arm/v7"."""
    entries = []
    for platform, image in images.items():
        os, architecture, *variant = platform.split("/")
        described = {"os": os, "architecture": architecture, **({"variant": variant[0]} if variant else {})}
        entries.append({**image.manifest.descriptor, "platform": described})
    kind = DOCKER_LIST if docker else OCI_INDEX
    return Blob(kind, json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode())


class Pusher:
    """Puts things into a repository; `url` is http(s)://[USER:PASSWORD@]HOST."""

    def __init__(self, url: str, path: str) -> None:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self.connection: http.client.HTTPConnection
        if parts.scheme == "https":
            trusting = ssl._create_unverified_context()
            self.connection = http.client.HTTPSConnection(host, timeout=20, context=trusting)
        else:
            self.connection = http.client.HTTPConnection(host, timeout=20)
        self.path = path
        self.headers: dict[str, str] = {}
        if parts.username:
            pair = f"{parts.username}:{parts.password}".encode()
            self.headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> http.client.HTTPResponse:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, body, {**self.headers, **sent})
        answer = self.connection.getresponse()
        said = answer.read()
        assert answer.status < 300, (answer.status, said)
        return answer

    def blob(self, blob: Blob) -> None:
        begun = self.send("POST", f"/v2/{self.path}/blobs/uploads/").headers["Location"]
        parts = urlsplit(begun)
        self.send("PUT", f"{parts.path}?{parts.query}&digest={blob.digest}", blob.data)

    def manifest(self, blob: Blob, tag: str = "") -> None:
        self.send(
            "PUT", f"/v2/{self.path}/manifests/{tag or blob.digest}", blob.data, Content_Type=blob.media_type
        )

    def image(self, image: Image, tag: str = "") -> Image:
        for each in (image.config, *image.layers):
            self.blob(each)
        self.manifest(image.manifest, tag)
        return image
