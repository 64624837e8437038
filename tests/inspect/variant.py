# SPDX-License-Identifier: Apache-2.0
"""Makes a small built variant in a layout: images with dpkg's database, and the records of their build."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cellblock.oci.layout import Layout
from cellblock.oci.model import LAYER_ZSTD
from cellblock.store.record import ImageRecord, LayerKind, LayerRecord
from tests.oci.layers import layer_bytes, make_image, member

Layer = Sequence[tuple[tarfile.TarInfo, bytes]]
LOCK_DATE = 1_777_593_600
"""2026-05-01, in seconds since the epoch."""
HOSTILE = "</script><img src=x onerror=alert(1)>"

BASE: Layer = [
    member("usr/lib"),
    member("usr/lib/libc.so.6", b"c" * 2_000_000),
    member("usr/bin/bash", b"b" * 1_200_000),
    member("etc/os-release", "made by a script"),
    member("var/lib/dpkg/info/libc6:amd64.list", "/.\n/lib\n/lib/libc.so.6\n"),
    member("var/lib/dpkg/info/bash.list", "/.\n/usr/bin/bash\n"),
    member(
        "var/lib/dpkg/status",
        "Package: libc6\nStatus: install ok installed\nVersion: 2.41-12\n\n"
        "Package: bash\nStatus: install ok installed\nVersion: 5.2\n",
    ),
]
WORKER: Layer = [
    member("usr/sbin/slurmd", b"s" * 900_000),
    member(f"opt/{HOSTILE.replace('/', '')}", b"x" * 400_000),
    member("var/lib/dpkg/info/slurmd.list", "/.\n/usr/sbin/slurmd\n"),
]
JAIL: Layer = [member("usr/bin/vim.tiny", b"v" * 700_000)]
LAYERS: Mapping[str, tuple[LayerKind, Layer, tuple[tuple[str, str], ...]]] = {
    "packages of base": ("base", BASE, (("bash", "5.2"), ("libc6", "2.41-12"))),
    "packages of worker": ("packages", WORKER, (("slurmd", "24.11.5-4"), (HOSTILE, "1"))),
    "packages of jail": ("packages", JAIL, (("vim-tiny", "9.1"),)),
}
IMAGES = {
    "base": ("packages of base",),
    "worker": ("packages of base", "packages of worker"),
    "jail": ("packages of base", "packages of jail"),
}


def build_variant(place: Path | Layout, variant: str = "debian13") -> tuple[Layout, dict[str, ImageRecord]]:
    """Three images, `worker` and `jail` on `base`."""
    layout = place if isinstance(place, Layout) else Layout(place)
    records = {}
    for number, (image, titles) in enumerate(IMAGES.items(), 1):
        name = f"localhost/cellblock/{image}:{variant}"
        stored = make_image(layout, name, *(LAYERS[title][1] for title in titles), media_type=LAYER_ZSTD)
        layers = tuple(
            LayerRecord(
                LAYERS[title][0],
                title,
                "k",
                blob.digest,
                diff_id,
                blob.size,
                len(layer_bytes(LAYERS[title][1])),
                LAYERS[title][2],
                1.5 * number,
            )
            for title, blob, diff_id in zip(
                titles, stored.manifest.layers, stored.configuration.diff_ids, strict=True
            )
        )
        records[image] = ImageRecord(
            image,
            variant,
            name,
            stored.digest,
            f"{number:064}",
            {},
            layers,
            "sha256:lock",
            LOCK_DATE,
            61.0 * number,
            {f"{title}: install packages": 50.0 for title in titles}
            | {f"{titles[-1]}: write the layer": 71.0},
        )
    return layout, records
