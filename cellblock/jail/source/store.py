# SPDX-License-Identifier: Apache-2.0
"""Reads an image that this checkout built, from its local store, as a source of find.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail.source.identity import SourceIdentity
from cellblock.jail.source.layout import LayoutSource
from cellblock.jail.source.stream import SourceStream
from cellblock.store.image_store import PREFIX, image_store


@dataclass
class StoreSource:
    """The image `reference`, `localhost/cellblock/IMAGE:VARIANT`, in the store of this checkout's builds.

    Podman may have an image of that name, too: of an earlier build, or of another checkout.
    """

    reference: str
    _found: str = ""
    """The digest that the name meant when it was first asked for: a build may give it to another image."""

    def identify(self, known: SourceIdentity | None) -> SourceIdentity:
        """Return the identity: the configuration's digest, which is also podman's id of the image."""
        return self._source().identify(known)

    @contextmanager
    def feed(self, note: Path) -> Iterator[SourceStream]:
        """Give its layers; no build can remove them meanwhile."""
        with image_store().writing(), self._source().feed(note) as stream:
            yield stream

    def _source(self) -> LayoutSource:
        """Raises CellblockError: this checkout did not build it."""
        store = image_store()
        found = store.references().get(self.reference)
        self._found = self._found or (found.digest if found else "")
        if not self._found:
            name, _, variant = self.reference.removeprefix(PREFIX).partition(":")
            build = f"build.py build {name}{f' -v {variant}' if variant else ''}"
            raise CellblockError(
                f"this checkout has not built {self.reference}",
                hint=f"build it: `{build}`; podman's is containers-storage:{self.reference}",
            )
        return LayoutSource(self.reference, store.folder, self._found)
