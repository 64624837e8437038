# SPDX-License-Identifier: Apache-2.0
"""Makes images of random bytes, pushes them by Cellblock and reads them by skopeo."""

from __future__ import annotations

import json
import random
import subprocess
from dataclasses import replace
from pathlib import Path

from cellblock.events import Events
from cellblock.oci.layout import Layout
from cellblock.oci.model import (
    CONFIG,
    EMPTY,
    LAYER_TAR,
    Configuration,
    Descriptor,
    Manifest,
    Platform,
)
from cellblock.oci.model import digest_of_bytes as digest_of
from cellblock.oci.push import Item, Pushed, push
from cellblock.oci.registry import (
    ConnectionOptions,
    Registry,
)

# More than the client sends in one piece with the end of an upload, and than sockets hold.
LARGE = 6_000_000


def content(seed: object, size: int = 1000) -> bytes:
    return random.Random(str(seed)).randbytes(size)


def add(layout: Layout, name: str, *layers: bytes, architecture: str = "amd64") -> Descriptor:
    blobs = tuple(layout.write(layer, LAYER_TAR) for layer in layers)
    configuration = Configuration(
        Platform("linux", architecture), tuple(blob.digest for blob in blobs), {"Labels": {"name": name}}
    )
    data = configuration.to_bytes()
    config = Descriptor(CONFIG, digest_of(data), len(data))
    return layout.add(Manifest(config, blobs), configuration, [name]).descriptor


def attach(layout: Layout, subject: Descriptor, text: str) -> Descriptor:
    empty, blob = layout.write(b"{}", EMPTY), layout.write(text.encode(), "text/plain")
    return layout.attach(
        Manifest(empty, (blob,), {"text": text}, replace(subject, annotations={}), "application/x-note")
    )


def send(layout: Layout, host: str, *items: Item, options: ConnectionOptions | None = None) -> list[Pushed]:
    return push(layout, Registry(host, options), items, Events())


def image(name: str, root: Descriptor, path: str, *tags: str) -> Item:
    return Item(name, root, path, tags or ("t",))


def pulled(host: str, path: str, tag: str, folder: Path) -> str:
    """The digest of what skopeo pulls, whole."""
    argv = ["skopeo", "copy", "--quiet", "--all", "--preserve-digests", "--src-tls-verify=false"]
    argv += [f"docker://{host}/{path}:{tag}", f"oci:{folder}:x"]
    subprocess.run(argv, check=True, capture_output=True)
    return Layout(folder).references()["x"].digest


def skopeo_sees(host: str, path: str, tag: str) -> str:
    argv = ["skopeo", "inspect", "--tls-verify=false", f"docker://{host}/{path}:{tag}"]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return str(json.loads(done.stdout)["Digest"])
