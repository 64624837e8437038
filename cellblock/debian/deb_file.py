# SPDX-License-Identifier: Apache-2.0
"""Opens the two archives in a deb (deb(5), format 2.0), its control fields and its files, as streams."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

_MAGIC = b"!<arch>\n"
# ar(5): name 16, time 12, uid 6, gid 6, mode 8, size 10, end 2.
_HEADER = 60
_BUFFER = 1 << 20

DAMAGE = (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError)
"""What reading a file raises that is no deb; zstd's own error is turned into OSError."""


@contextmanager
def member(deb: Path, name: str) -> Iterator[tarfile.TarFile]:
    """The archive `control` or `data` of a deb, to be read once from its beginning.

    Raises one of DAMAGE when the file is none.
    """
    with deb.open("rb") as file:
        found, size = _seek(file, f"{name}.tar", deb)
        stream = io.BufferedReader(_Part(file, size), _BUFFER)
        with (
            _uncompressed(stream, found, deb) as tar,
            tarfile.open(
                fileobj=tar, mode="r|", bufsize=_BUFFER, encoding="utf-8", errors="surrogateescape"
            ) as archive,
        ):
            yield archive


def _seek(file: IO[bytes], wanted: str, deb: Path) -> tuple[str, int]:
    """Go to where a member begins; its whole name and its size."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError(f"{deb} is not a deb: it is not an ar archive")
    while header := file.read(_HEADER):
        if len(header) < _HEADER or header[58:] != b"`\n":
            break
        name, size = header[:16].decode("ascii", "replace").strip().rstrip("/"), int(header[48:58])
        if name == wanted or name.startswith(f"{wanted}."):
            return name, size
        file.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError(f"{deb} is not a deb: it has no {wanted}")


@contextmanager
def _uncompressed(stream: IO[bytes], name: str, deb: Path) -> Iterator[IO[bytes]]:
    kind = name.rpartition(".")[2]
    if kind == "tar":
        yield stream
    elif kind == "xz":
        with lzma.LZMAFile(stream) as file:
            yield cast("IO[bytes]", file)
    elif kind == "gz":
        with gzip.GzipFile(fileobj=stream) as file:
            yield cast("IO[bytes]", file)
    elif kind == "zst":
        import zstandard

        try:
            with zstandard.ZstdDecompressor().stream_reader(stream) as file:
                yield cast("IO[bytes]", file)
        except zstandard.ZstdError as error:
            raise OSError(f"{deb}: {error}") from error
    else:
        raise ValueError(f"{deb}: {name} is compressed in a way that is not known here")


class _Part(io.RawIOBase):
    """The next `size` bytes of a file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)
