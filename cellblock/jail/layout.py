"""Reading an OCI layout: which image a tag names, its layers and labels (OCI image-spec 1.1)."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellblock.errors import CellblockError

_REF_NAME = "org.opencontainers.image.ref.name"
_INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class LayoutImage:
    """An image of a layout.

    `id` is the digest of its configuration; `layers` are digests, the lowest layer first.
    """

    id: str
    labels: Mapping[str, str]
    layers: tuple[str, ...]


def read_image(folder: Path, tag: str) -> LayoutImage:
    """The image `tag` of the layout `folder`; an empty tag serves where there is one image only.

    Everything but the layers is checked against its digest: see `blob`. Raises CellblockError.
    """
    index = _json(folder / "index.json", hint=f"is {folder} an OCI layout?")
    descriptor = _choose(folder, index, tag)
    while descriptor.get("mediaType") in _INDEX_TYPES:
        descriptor = _of_this_machine(folder, _json(blob(folder, descriptor["digest"])))
    manifest = _json(blob(folder, descriptor["digest"]))
    config = _json(blob(folder, manifest["config"]["digest"]))
    return LayoutImage(
        id=manifest["config"]["digest"],
        labels=(config.get("config") or {}).get("Labels") or {},
        layers=tuple(layer["digest"] for layer in manifest["layers"]),
    )


def blob(folder: Path, digest: str) -> Path:
    """The file of a blob, after its content was checked."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise CellblockError(f"{folder}: {digest!r} is no SHA-256 digest")
    path = folder / "blobs" / "sha256" / digest[len("sha256:") :]
    try:
        found = sha256_of(path)
    except FileNotFoundError:
        raise CellblockError(
            f"{folder}: the blob {digest} is missing", hint="copy the whole layout again"
        ) from None
    if found != digest[len("sha256:") :]:
        raise CellblockError(
            f"{path}: damaged: its content has SHA-256 {found}", hint="copy the whole layout again"
        )
    return path


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            total.update(data)
    return total.hexdigest()


def _choose(folder: Path, index: dict[str, Any], tag: str) -> dict[str, Any]:
    manifests: list[dict[str, Any]] = index.get("manifests", [])
    tags = [(one.get("annotations") or {}).get(_REF_NAME, "") for one in manifests]
    if not tag and len(manifests) == 1:
        return manifests[0]
    if tag and tag in tags:
        return manifests[tags.index(tag)]
    known = ", ".join(name for name in tags if name) or "none"
    what = f"has no tag {tag}" if tag else f"holds {len(manifests)} images; say which"
    raise CellblockError(f"oci:{folder} {what}", hint=f"its tags: {known}; write oci:{folder}:TAG")


def _of_this_machine(folder: Path, index: dict[str, Any]) -> dict[str, Any]:
    machine = _ARCHITECTURES.get(platform.machine(), platform.machine())
    found: dict[str, Any]
    for found in index.get("manifests", []):
        if (found.get("platform") or {}).get("architecture") == machine:
            return found
    raise CellblockError(f"oci:{folder} has no image for {machine}")


def _json(path: Path, *, hint: str = "") -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CellblockError(f"{path} does not exist", hint=hint) from None
    except ValueError as error:
        raise CellblockError(f"{path}: {error}", hint=hint) from None
    if not isinstance(value, dict):
        raise CellblockError(f"{path}: expected a JSON object", hint=hint)
    return value
