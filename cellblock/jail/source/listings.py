# SPDX-License-Identifier: Apache-2.0
"""Keeps a list of each layer's entries on the volume, so that an upgrade reads only new layers.

    VOLUME/.cellblock/layers/DIGEST     the entries of the layer with this SHA-256, with their files' digests

The C code writes a listing (`listing.h`) while it reads the layer. Each is put in place by a rename and
ends in a checksum. A damaged listing, or one of another format, is ignored and its layer is read again.
"""

from __future__ import annotations

import os
import secrets
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from cellblock.files import durable
from cellblock.jail.source.image_core import LayerBytes

_KEPT = 256
"""Listings that stay, the last used ones: images have up to some 100 layers; 150 bytes for each file."""

# struct listed of listing.c, as far as it is needed here.
_ENTRY = struct.Struct("=cBHHI20xI16s32s")
_MAGIC = b"cellblock-layer-listing 1\n"
_HAS_DIGEST = 1


class LayerListings:
    """The listings of a volume; `folder` is made when the first one is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def joined(
        self, layers: Sequence[LayerBytes], *, keep: bool, read: Collection[str] = ()
    ) -> Iterator[list[LayerBytes]]:
        """`layers`, with the descriptor of its listing for each that has one and is not in `read`.

        With `keep` the listings of the others are kept if the block ends well.
        """
        if keep:
            for leftover in self._folder.glob("*.new"):  # of a writer that was killed
                leftover.unlink()
        fresh: dict[str, Path] = {}
        used: list[Path] = []
        with ExitStack() as opened:
            found = []
            for layer in layers:
                descriptor = -1
                if layer.digest is not None and layer.digest not in read:
                    descriptor = self._open(layer.digest)
                if descriptor >= 0:
                    assert layer.digest is not None
                    opened.callback(os.close, descriptor)
                    used.append(self._folder / layer.digest)
                    found.append(replace(layer, listing=descriptor))
                elif keep and layer.digest is not None and layer.digest not in fresh:
                    fresh[layer.digest] = path = self._new(layer.digest)
                    opened.callback(path.unlink, missing_ok=True)
                    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                    opened.callback(os.close, descriptor)
                    found.append(replace(layer, list_to=descriptor))
                else:
                    found.append(layer)
            yield found
            for digest, path in fresh.items():
                if path.stat().st_size:  # empty: the core could not tell it by a listing
                    durable.flush(path)
                    path.replace(self._folder / digest)
            if keep:
                self._prune(used)

    def holds(self, digest: str | None, wanted: Collection[bytes]) -> bool:
        """Whether the layer has content with one of these digests; True when that is not known."""
        if digest is None:
            return True
        try:
            with (self._folder / digest).open("rb", buffering=1 << 20) as file:
                return _has(file, wanted)
        except FileNotFoundError:
            return True

    def _open(self, digest: str) -> int:
        try:
            return os.open(self._folder / digest, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1

    def _new(self, digest: str) -> Path:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return self._folder / f"{digest}.{secrets.token_hex(4)}.new"

    def _prune(self, used: list[Path]) -> None:
        if not self._folder.is_dir():
            return
        for path in used:
            os.utime(path)
        by_age = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in by_age[:-_KEPT]:
            path.unlink(missing_ok=True)


def _has(file: BinaryIO, wanted: Collection[bytes]) -> bool:
    """Whether a listing has one of `wanted`; True for one that is damaged. One entry in memory at a time."""
    left = os.fstat(file.fileno()).st_size - 32 - len(_MAGIC)
    if file.read(len(_MAGIC)) != _MAGIC:
        return True
    while left > 0:
        head = file.read(_ENTRY.size)
        if len(head) < _ENTRY.size:
            return True
        _, content, path, target, xattrs, _, _, found = _ENTRY.unpack(head)
        if content == _HAS_DIGEST and found in wanted:
            return True
        file.seek(path + target + xattrs, os.SEEK_CUR)
        left -= _ENTRY.size + path + target + xattrs
    return left < 0
