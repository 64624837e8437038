# SPDX-License-Identifier: Apache-2.0
"""Identifies the image or tree that a jail was filled from, so that a later command can tell a change.

It also has the interface that every kind of source implements.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from cellblock.jail.source.stream import SourceStream

_LABEL = "org.cellblock"


@dataclass(frozen=True)
class SourceIdentity:
    """Identifies a source: `id` is equal for equal content and decides whether anything changed.

    For images and layouts it is the digest of the image's configuration, for a tar the SHA-256 of the
    file, for a directory that of its listing, for an adopted tree that of its manifest. `stamp` is a shortcut
    that a tar's unchanged file has. `key` and `release` are what the image's labels say: Cellblock's cache
    key and Slurm's release.
    """

    kind: Literal["image", "registry", "layout", "tar", "directory", "adopted"]
    reference: str
    id: str
    key: str = ""
    release: str = ""
    stamp: str = ""

    @property
    def is_adopted(self) -> bool:
        """Whether no image made the tree: `jail adopt` took it as it was."""
        return self.kind == "adopted"

    def __str__(self) -> str:
        """For a message: the reference that was asked for, and the id that it meant."""
        return f"{self.reference} ({self.id[: len('sha256:') + 12]})"


class Source(Protocol):
    """One kind of source."""

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Identify the source. `known` is an earlier identity that may save reading it all again."""

    def feed(self, note: Path) -> AbstractContextManager[SourceStream]:
        """Give the bytes to the image core; the file `note` gets what must be undone after a kill."""


def from_labels(
    kind: Literal["image", "registry", "layout"], reference: str, identity: str, labels: Mapping[str, str]
) -> SourceIdentity:
    """The identity of an image with these labels; `identity` is its configuration's digest."""
    return SourceIdentity(
        kind,
        reference,
        identity,
        key=labels.get(f"{_LABEL}.key", ""),
        release=labels.get(f"{_LABEL}.slurm", ""),
    )
