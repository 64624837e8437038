# SPDX-License-Identifier: Apache-2.0
"""Holds the images built on this machine in one OCI layout, in which each checkout has names of its own.

Layers and builds are shared, by their digests and keys. A plain name, `localhost/cellblock/worker:debian13`,
means what this checkout built last: in the index it is `localhost/cellblock/worker:debian13.of-CHECKOUT`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cellblock import paths
from cellblock.oci.layout import Layout
from cellblock.oci.model import Descriptor
from cellblock.store import checkout

PREFIX = "localhost/cellblock/"
"""What the names of images begin with; IMAGE:VARIANT follows."""
BY_KEY = ".key-"
"""In a name that says which inputs an image was made of: it means the same to every checkout."""

_OWN = ".of-"
_FORGET_AFTER_S = 7 * 24 * 3600


class ImageStore(Layout):
    """The layout of `cache` as the checkout `owner` sees it."""

    def __init__(self, cache: Path, owner: str) -> None:
        super().__init__(cache / "images")
        self._checkouts, self._records = cache / "checkouts", cache / "records"
        self._owner = owner

    def references(self) -> Mapping[str, Descriptor]:
        """Descriptors by name: the checkout's own names, and those by key."""
        found = {}
        for name, descriptor in super().references().items():
            plain, own, owner = name.partition(_OWN)
            if own and owner == self._owner:
                found[plain] = descriptor
            elif BY_KEY in name:
                found[name] = descriptor
        return found

    def tag(self, descriptor: Descriptor, names: Sequence[str]) -> None:
        """Give `names` to what `descriptor` describes."""
        super().tag(descriptor, list(map(self._stored_as, names)))
        self._note_use()

    def untag(self, names: Sequence[str]) -> None:
        """Take `names` away."""
        super().untag(list(map(self._stored_as, names)))

    def forget_checkouts(self) -> None:
        """Take their names from images of checkouts that are gone, and were not used for a week."""
        known = super().references()
        owners = {owner for _, own, owner in (name.partition(_OWN) for name in known) if own}
        gone = {owner for owner in owners if owner != self._owner and self._is_gone(owner)}
        # Names without an owner are of a time when there was none.
        names = [name for name in known if BY_KEY not in name and name.partition(_OWN)[2] in {"", *gone}]
        if names:
            super().untag(names)
        for owner in gone:
            shutil.rmtree(self._records / owner, ignore_errors=True)
            (self._checkouts / owner).unlink(missing_ok=True)

    def _stored_as(self, name: str) -> str:
        return name if BY_KEY in name else f"{name}{_OWN}{self._owner}"

    def _note_use(self) -> None:
        path = self._checkouts / self._owner
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(str(paths.PROJECT), encoding="utf-8", errors="surrogateescape")
            os.utime(path)

    def _is_gone(self, owner: str) -> bool:
        path = self._checkouts / owner
        try:
            folder = path.read_text(encoding="utf-8", errors="surrogateescape")
            old = time.time() - path.stat().st_mtime > _FORGET_AFTER_S
        except OSError:
            return True
        return old and not checkout.is_there(owner, folder)


def image_store() -> ImageStore:
    """The images of this machine, with the names of this checkout."""
    return ImageStore(paths.cache(), checkout.identity())
