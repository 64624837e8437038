# SPDX-License-Identifier: Apache-2.0
"""Records each build of an image: the inputs of its key, its layers with their packages, its times.

There is one JSON file for each image and variant of a checkout, replaced by rename. `why`, `report`, `diff`
and the attestations read them. Losing them loses no image.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from cellblock import paths
from cellblock.files import durable
from cellblock.store import checkout

LayerKind = Literal["base", "shared", "packages", "cuda", "manuals", "files", "output"]
"""base: bootstrapped; shared: packages of several images; packages: of one image; cuda: packages that only
a CUDA variant asks for; manuals: the manual pages of packages below; files: what a definition lays over and
runs; output: what was compiled."""


@dataclass(frozen=True)
class LayerRecord:
    """A layer: sizes in bytes, `packages` as (name, version), `seconds` that making it took then."""

    kind: LayerKind
    title: str
    """For a person: "packages of worker", "packages shared by login, worker"."""
    key: str
    digest: str
    diff_id: str
    size: int
    uncompressed: int
    packages: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class ImageRecord:
    """A built image. `inputs` are the digests that its key is made of, by name."""

    image: str
    variant: str
    reference: str
    digest: str
    key: str
    inputs: Mapping[str, str]
    layers: tuple[LayerRecord, ...]
    lock: str
    """Digest of the lock that its packages came from."""
    epoch: int
    """SOURCE_DATE_EPOCH of the build."""
    seconds: float = 0.0
    steps: Mapping[str, float] = field(default_factory=dict)
    commit: str | None = None
    """The git commit of the definitions, when nothing but it was built."""
    sites: tuple[str, ...] = ()
    """The folders of a site's own definitions that the build had (`--images`)."""
    shaped_by: tuple[str, ...] = ()
    """Those of them that declare this image, or one that it needs."""


def record_of(data: Mapping[str, Any]) -> LayerRecord | None:
    """A layer's record from its JSON; None when that is another version's."""
    try:
        return LayerRecord(**{**data, "packages": tuple(tuple(each) for each in data["packages"])})
    except (TypeError, KeyError, ValueError):
        return None


def write_record(record: ImageRecord) -> None:
    """Remember `record` as the newest of its image and variant."""
    path = _path(record.image, record.variant)
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.replace(path, json.dumps(asdict(record), indent=1))


def read_record(image: str, variant: str) -> ImageRecord | None:
    """The newest record of an image of a variant; None when there is none that can be read."""
    try:
        data = json.loads(_path(image, variant).read_text(encoding="utf-8"))
        layers = tuple(record_of(layer) for layer in data.pop("layers"))
        known = tuple(layer for layer in layers if layer)
        for key in ("sites", "shaped_by"):
            data[key] = tuple(data.get(key, ()))
        return ImageRecord(layers=known, **data) if len(known) == len(layers) else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _path(image: str, variant: str) -> Path:
    return paths.cache() / "records" / checkout.identity() / variant / f"{image}.json"
