# SPDX-License-Identifier: Apache-2.0
"""Reads images of OCI layouts that other tools made (OCI image-spec 1.1), from a folder or from a tar.

It finds the image that a tag names, for this machine's architecture, with its layers and labels. layout.py
reads and writes the layouts that Cellblock itself keeps, in which every image has a name.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cellblock.errors import CellblockError
from cellblock.files.sha256 import sha256_of_file
from cellblock.oci.model import DOCKER_LIST, INDEX, REF_NAME

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""uname(2)'s names to those of images."""


@dataclass(frozen=True)
class LayoutImage:
    """An image of a layout.

    `id` is the digest of its configuration; `layers` are digests, the lowest layer first.
    """

    id: str
    labels: Mapping[str, str]
    layers: tuple[str, ...]


def read_image(folder: Path, tag: str) -> LayoutImage:
    """The image `tag` of the layout `folder`, or with that digest; an empty tag serves for the only one.

    Everything but the layers is checked against its digest: see `blob`. Raises CellblockError.
    """
    return image_of(_Folder(folder), tag)


class Files(Protocol):
    """The files of a layout, wherever they are; `name` is for messages and how a user writes it."""

    @property
    def name(self) -> str:
        """As a user writes the layout."""

    def json(self, name: str) -> dict[str, Any]:
        """A file as JSON; a blob's content is checked against its digest."""


@dataclass(frozen=True)
class _Folder:
    folder: Path

    @property
    def name(self) -> str:
        return f"oci:{self.folder}"

    def json(self, name: str) -> dict[str, Any]:
        if name == "index.json":
            return _json(self.folder / name, hint=f"is {self.folder} an OCI layout?")
        return _json(blob(self.folder, name.removeprefix("blobs/").replace("/", ":")))


def image_of(files: Files, tag: str) -> LayoutImage:
    """The image `tag` of a layout. Raises CellblockError."""

    def read(descriptor: Mapping[str, Any]) -> dict[str, Any]:
        return files.json(f"blobs/{descriptor['digest'].replace(':', '/')}")

    descriptor = _choose(files, files.json("index.json"), tag)
    while descriptor.get("mediaType") in (INDEX, DOCKER_LIST):
        descriptor = _of_this_machine(files, read(descriptor))
    manifest = read(descriptor)
    config = read(manifest["config"])
    return LayoutImage(
        id=manifest["config"]["digest"],
        labels=(config.get("config") or {}).get("Labels") or {},
        layers=tuple(layer["digest"] for layer in manifest["layers"]),
    )


def blob_path(folder: Path, digest: str) -> Path:
    """The file of a blob, unchecked."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise CellblockError(f"{folder}: {digest!r} is no SHA-256 digest", hint="copy the whole layout again")
    return folder / "blobs" / "sha256" / digest[len("sha256:") :]


def blob(folder: Path, digest: str) -> Path:
    """The file of a blob, after its content was checked."""
    path = blob_path(folder, digest)
    try:
        found = sha256_of_file(path)
    except FileNotFoundError:
        raise CellblockError(
            f"{folder}: the blob {digest} is missing", hint="copy the whole layout again"
        ) from None
    if found != digest[len("sha256:") :]:
        raise CellblockError(
            f"{path}: damaged: its content has SHA-256 {found}", hint="copy the whole layout again"
        )
    return path


def _choose(files: Files, index: dict[str, Any], tag: str) -> dict[str, Any]:
    manifests: list[dict[str, Any]] = index.get("manifests", [])
    tags = [(one.get("annotations") or {}).get(REF_NAME, "") for one in manifests]
    # Attestations of an image stand beside it, without a tag.
    images = [one for one, name in zip(manifests, tags, strict=True) if name] or manifests
    if not tag and len(images) == 1:
        return images[0]
    if tag and tag in tags:
        return manifests[tags.index(tag)]
    if tag.startswith("sha256:"):
        return {"digest": tag}
    known = ", ".join(name for name in tags if name) or "none"
    what = f"has no tag {tag}" if tag else f"holds {len(images)} images; say which"
    raise CellblockError(f"{files.name} {what}", hint=f"its tags: {known}; write {files.name}:TAG")


def _of_this_machine(files: Files, index: dict[str, Any]) -> dict[str, Any]:
    machine = ARCHITECTURES.get(platform.machine(), platform.machine())
    found: dict[str, Any]
    for found in index.get("manifests", []):
        if (found.get("platform") or {}).get("architecture") == machine:
            return found
    raise CellblockError(
        f"{files.name} has no image for {machine}", hint=f"copy the image of {machine} into it"
    )


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
