# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of `plan` and `why`: records of a base, of slurm on it, and of worker and login."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cellblock.oci.model import digest_of_bytes
from cellblock.store.record import ImageRecord, LayerKind, LayerRecord


def layer(title: str, size: int, *packages: tuple[str, str], kind: LayerKind = "packages") -> LayerRecord:
    digest = digest_of_bytes(title.encode())
    return LayerRecord(kind, title, "k", digest, digest, size, size * 3, packages, size / 1e7)


BASE = layer("base", 30_000_000, ("libc6", "2.41-12"), ("bash", "5.2"), kind="base")
SLURM = layer("packages shared by login, slurm, worker", 12_000_000, ("munge", "0.5"), kind="shared")
SSH = layer("packages shared by login, worker", 4_000_000, ("openssh-server", "10.0"), kind="shared")
SLURMD = layer("packages of worker", 6_000_000, ("slurmd", "24.11"))
FILES = layer("files of worker", 20_000, kind="files")


def record(image: str, *layers: LayerRecord, inputs: Mapping[str, str] | None = None) -> ImageRecord:
    return ImageRecord(
        image,
        "debian13",
        f"localhost/cellblock/{image}:debian13",
        digest_of_bytes(image.encode()),
        "0" * 64,
        inputs or {},
        layers,
        "sha256:lock",
        1_750_000_000,
        12.5,
        {"install": 9.5, "write layers": 3.0},
    )


@pytest.fixture
def records() -> dict[str, ImageRecord]:
    return {
        "base": record("base", BASE),
        "slurm": record("slurm", BASE, SLURM),
        "login": record("login", BASE, SLURM, SSH),
        "worker": record("worker", BASE, SLURM, SSH, SLURMD, FILES),
    }
