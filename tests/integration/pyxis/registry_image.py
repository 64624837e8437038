# SPDX-License-Identifier: Apache-2.0
"""Makes an image of one given layer for the tests' registry."""

from __future__ import annotations

import gzip
import json
import os

import zstandard

from tests.enroot.registry.images import (
    DOCKER_CONFIG,
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_MANIFEST,
    Blob,
    Image,
    digest_of,
)


def image(tar: bytes, *, docker: bool) -> Image:
    """Schema 2 with gzip, or OCI with zstd; its working directory and a variable are its configuration's."""
    layer = (
        Blob(DOCKER_LAYER, gzip.compress(tar, 1, mtime=0))
        if docker
        else Blob("application/vnd.oci.image.layer.v1.tar+zstd", zstandard.compress(tar, 1))
    )
    about = {"WorkingDir": "/work dir", "Env": ["WHERE=registry", f"KIND={'docker' if docker else 'oci'}"]}
    settings = {
        "architecture": os.uname().machine.replace("x86_64", "amd64").replace("aarch64", "arm64"),
        "os": "linux",
        "config": about,
        "rootfs": {"type": "layers", "diff_ids": [digest_of(tar)]},
    }
    config = Blob(DOCKER_CONFIG if docker else OCI_CONFIG, json.dumps(settings).encode())
    kind = DOCKER_MANIFEST if docker else OCI_MANIFEST
    described = {"config": config.descriptor, "layers": [layer.descriptor]}
    manifest = Blob(kind, json.dumps({"schemaVersion": 2, "mediaType": kind, **described}).encode())
    return Image(manifest, config, (layer,), (digest_of(tar),))
