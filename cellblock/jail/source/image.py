# SPDX-License-Identifier: Apache-2.0
"""Reads an image in the storage of podman and buildah on this machine, as a source of find.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail.source.directory import stream_of_directory
from cellblock.jail.source.identity import SourceIdentity, from_labels
from cellblock.jail.source.stream import SourceStream
from cellblock.jail.source.tar import TAR_NAME
from cellblock.process import Programs

NOTE = "mounted-image"
"""File of a working folder that names the image that is mounted for it; `release` unmounts it."""


@dataclass(frozen=True)
class ImageSource:
    """An image that buildah or podman holds, mounted read-only while it is read."""

    reference: str

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Ask podman: it shares buildah's storage and mounts images without a container."""
        done = Programs().run(["podman", "image", "inspect", self.reference], check=False)
        if done.status != 0:
            hint = "`podman images` lists them; `python3 build.py build jail` builds the image `jail`"
            if Path(self.reference).exists():
                hint = f"for the directory or file of that name write ./{self.reference}"
            if TAR_NAME.search(self.reference):
                raise CellblockError(
                    f"there is no file {Path(self.reference).absolute()}, and no image of that name",
                    hint="name a tar that is there",
                )
            raise CellblockError(f"there is no image {self.reference} in this machine's storage", hint=hint)
        image = json.loads(done.output)[0]
        return from_labels("image", self.reference, f"sha256:{image['Id']}", image.get("Labels") or {})

    @contextmanager
    def _mounted(self, note: Path) -> Iterator[Path]:
        """Mount the image by its id: a tag may move meanwhile."""
        image = self.identify(None).id.removeprefix("sha256:")
        note.write_text(image, encoding="ascii")
        try:
            yield Path(Programs().run(["podman", "image", "mount", image]).output.strip())
        finally:
            release(note)

    @contextmanager
    def feed(self, note: Path) -> Iterator[SourceStream]:
        """Mount it."""
        with self._mounted(note) as mounted:
            yield stream_of_directory(mounted)


def release(note: Path) -> None:
    """Unmount the image that `note` names: podman counts mounts, so exactly once for each."""
    try:
        image = note.read_text(encoding="ascii")
    except FileNotFoundError:
        return
    Programs().run(["podman", "image", "unmount", image], check=False)
    note.unlink()
