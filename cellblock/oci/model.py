# SPDX-License-Identifier: Apache-2.0
"""Defines descriptors, manifests and image configurations (OCI image-spec 1.1), as data and as bytes.

Bytes are canonical JSON: the same image has the same digest whoever wrote it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cellblock.errors import CellblockError

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER_TAR = "application/vnd.oci.image.layer.v1.tar"
LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYER_ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
EMPTY = "application/vnd.oci.empty.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"

REF_NAME = "org.opencontainers.image.ref.name"
"""Annotation of a descriptor in a layout's index: the name people use."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class MalformedImage(CellblockError):
    """Bytes that should be a part of an image are not."""

    def __init__(self, message: str, *, hint: str = "build or copy the image again") -> None:
        super().__init__(message, hint=hint)


@dataclass(frozen=True)
class Platform:
    """What an image runs on, in Go's names: `linux`, `amd64`, and for some processors a variant."""

    os: str
    architecture: str
    variant: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As a descriptor holds it."""
        return _present({"os": self.os, "architecture": self.architecture, "variant": self.variant})

    @staticmethod
    def of_json(data: Mapping[str, Any]) -> Platform:
        """From a descriptor's or a configuration's JSON."""
        return Platform(data.get("os", "linux"), data.get("architecture", ""), data.get("variant"))


@dataclass(frozen=True)
class Descriptor:
    """What a blob is, its digest ("sha256:...") and its size in bytes."""

    media_type: str
    digest: str
    size: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    platform: Platform | None = None
    artifact_type: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As manifests and indexes hold it."""
        return _present(
            {
                "mediaType": self.media_type,
                "digest": self.digest,
                "size": self.size,
                "annotations": dict(self.annotations) or None,
                "platform": self.platform.to_json() if self.platform else None,
                "artifactType": self.artifact_type,
            }
        )

    @staticmethod
    def of_json(data: Any) -> Descriptor:
        """Raises MalformedImage when a field is missing, of the wrong kind, or no SHA-256 digest."""
        if not isinstance(data, dict):
            raise MalformedImage(f"a descriptor must be an object, found {str(data)[:80]!r}")
        media_type, digest, size = data.get("mediaType"), data.get("digest"), data.get("size")
        if not isinstance(media_type, str) or not isinstance(size, int) or size < 0:
            raise MalformedImage(f"a descriptor lacks mediaType or size: {str(data)[:200]}")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise MalformedImage(f"'{digest}' is no SHA-256 digest", hint="only sha256 is supported")
        platform = data.get("platform")
        return Descriptor(
            media_type,
            digest,
            size,
            data.get("annotations") or {},
            Platform.of_json(platform) if isinstance(platform, dict) else None,
            data.get("artifactType"),
        )


@dataclass(frozen=True)
class Manifest:
    """An image manifest: its configuration and layers, the lowest first; or an artifact's.

    `subject` names the manifest that this one says something about (referrers).
    """

    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    subject: Descriptor | None = None
    artifact_type: str | None = None
    media_type: str = MANIFEST

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical(
            _present(
                {
                    "schemaVersion": 2,
                    "mediaType": self.media_type,
                    "artifactType": self.artifact_type,
                    "config": self.config.to_json(),
                    "layers": [layer.to_json() for layer in self.layers],
                    "subject": self.subject.to_json() if self.subject else None,
                    "annotations": dict(self.annotations) or None,
                }
            )
        )

    @staticmethod
    def of_bytes(data: bytes) -> Manifest:
        """Also of docker's schema 2. Raises MalformedImage."""
        text = parse(data)
        if "config" not in text or not isinstance(text.get("layers"), list):
            raise MalformedImage("a manifest lacks config or layers")
        subject = text.get("subject")
        return Manifest(
            Descriptor.of_json(text["config"]),
            tuple(Descriptor.of_json(layer) for layer in text["layers"]),
            text.get("annotations") or {},
            Descriptor.of_json(subject) if subject else None,
            text.get("artifactType"),
            text.get("mediaType", MANIFEST),
        )


@dataclass(frozen=True)
class Index:
    """An image index: one manifest a platform, or whatever a layout holds."""

    manifests: tuple[Descriptor, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    subject: Descriptor | None = None

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical(
            _present(
                {
                    "schemaVersion": 2,
                    "mediaType": INDEX,
                    "manifests": [manifest.to_json() for manifest in self.manifests],
                    "subject": self.subject.to_json() if self.subject else None,
                    "annotations": dict(self.annotations) or None,
                }
            )
        )

    @staticmethod
    def of_bytes(data: bytes) -> Index:
        """Also of docker's manifest lists. Raises MalformedImage."""
        text = parse(data)
        if not isinstance(text.get("manifests"), list):
            raise MalformedImage("an index lacks manifests")
        subject = text.get("subject")
        return Index(
            tuple(Descriptor.of_json(manifest) for manifest in text["manifests"]),
            text.get("annotations") or {},
            Descriptor.of_json(subject) if subject else None,
        )


@dataclass(frozen=True)
class Configuration:
    """An image's configuration (config.md): platform, what to run, and its layers' diff ids.

    `created` is in seconds since the epoch; `settings` is the `config` object (Env, Entrypoint,
    Cmd, Labels ...); `history` says of each layer who made it.
    """

    platform: Platform
    diff_ids: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    created: str | None = None
    history: tuple[Mapping[str, Any], ...] = ()

    def to_bytes(self) -> bytes:
        """Canonical JSON."""
        return canonical(
            _present(
                {
                    **self.platform.to_json(),
                    "created": self.created,
                    "config": dict(self.settings),
                    "rootfs": {"type": "layers", "diff_ids": list(self.diff_ids)},
                    "history": [dict(entry) for entry in self.history] or None,
                }
            )
        )

    @staticmethod
    def of_bytes(data: bytes) -> Configuration:
        """Raises MalformedImage."""
        text = parse(data)
        diff_ids = (text.get("rootfs") or {}).get("diff_ids")
        if not isinstance(diff_ids, list):
            raise MalformedImage("an image configuration lacks rootfs.diff_ids")
        return Configuration(
            Platform.of_json(text),
            tuple(diff_ids),
            text.get("config") or {},
            text.get("created"),
            tuple(text.get("history") or ()),
        )


def canonical(value: Any) -> bytes:
    """JSON with sorted keys and no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`. Raises MalformedImage."""
    try:
        value = json.loads(data)
    except ValueError as error:
        raise MalformedImage(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise MalformedImage(f"must be a JSON object, found {data[:80]!r}")
    return value


def digest_of_bytes(data: bytes) -> str:
    """ "sha256:" and 64 hexadecimal digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _present(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if each is not None}
