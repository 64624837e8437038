# SPDX-License-Identifier: Apache-2.0
"""Passes layers and tar files to the C code that reads them (native/layers), as file descriptors.

One of a file, or one of a pipe that a thread fills. Nothing is stored on the way: layers from a registry go
through a pipe of 64 KiB.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellblock.jail.source.image_core import LayerBytes


@dataclass
class SourceStream:
    """The content of a source: layers, the lowest first, or a `directory`.

    `total` is the number of bytes that will be read, and `needs` the least that they will take on the
    volume; `files` how many there will be (0: not known before).
    """

    layers: Sequence[LayerBytes] = ()
    directory: Path | None = None
    total: int = 0
    needs: int = 0
    files: int = 0

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests of all layers; empty when one is unknown or there are none."""
        found = tuple(layer.digest for layer in self.layers if layer.digest is not None)
        return found if len(found) == len(self.layers) else ()

    errors: list[BaseException] = field(default_factory=list)
    """Errors of threads that fill pipes: the cause, where the core only sees that a layer was cut off."""


def opener(path: Path) -> Callable[[], int]:
    """Opens the file for reading."""
    return lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def piped(stream: SourceStream, chunks: Callable[[], Iterator[bytes]]) -> Callable[[], int]:
    """Opens a pipe that a new thread fills with `chunks`; its error goes to `feeding.errors`."""

    def fill(descriptor: int) -> None:
        try:
            with open(descriptor, "wb", buffering=0) as pipe, contextlib.suppress(BrokenPipeError):
                for chunk in chunks():
                    view = memoryview(chunk)
                    while view:
                        view = view[pipe.write(view) :]
        except BaseException as error:
            stream.errors.append(error)

    def open_pipe() -> int:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        threading.Thread(target=fill, args=(writing,), daemon=True).start()
        return reading

    return open_pipe


def part_of_file(path: Path, offset: int, size: int) -> Iterator[bytes]:
    """`size` bytes of the file after `offset`, in chunks."""
    with path.open("rb") as file:
        file.seek(offset)
        while size > 0 and (data := file.read(min(size, 1 << 20))):
            size -= len(data)
            yield data
