# SPDX-License-Identifier: Apache-2.0
"""Writes a folder in overlayfs' form as a layer in one pass: tar, compression, digests; opens stored layers.

The same tree gives the same bytes: entries sorted, owners by number, no time after `epoch`, no access or
change times (image-spec 1.1, layer.md; POSIX pax). GNU tar reads the files: a tenth of the time that a
writer in Python takes. layer_tar.py reads a layer's members.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import IO, Literal, Protocol, cast

from cellblock.errors import CellblockError, UsageError
from cellblock.oci.blob_writer import BlobWriter
from cellblock.oci.layout import Layout
from cellblock.oci.model import LAYER_GZIP, LAYER_TAR, LAYER_ZSTD, Descriptor

# zstd's bytes are the same for any number of threads, but not for none.
_ZSTD_THREADS = 2

_CHUNK = 1 << 20
_BLOCK = 512

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True)
class Compression:
    """How layers are compressed: zstd and gzip by level (1 to 19, 1 to 9), or none."""

    kind: Literal["zstd", "gzip", "none"] = "zstd"
    level: int = 3

    @property
    def framed(self) -> bool:
        """Whether what was compressed before, by itself, may be taken as it is: nobody asked for a level."""
        return self == Compression()

    @staticmethod
    def parse(text: str) -> Compression:
        """From `zstd`, `zstd:19`, `gzip`, `gzip:9` or `none`. Raises UsageError.

        zstd's default is 3: level 9 saves a tenth of the bytes and takes three times as long, 19 a sixth and
        twenty times (docs/benchmarks.md).
        """
        kind, _, number = text.partition(":")
        default, most = {"zstd": (3, 19), "gzip": (6, 9), "none": (0, 0)}.get(kind, (0, -1))
        if most < 0 or (number and not (number.isdigit() and 1 <= int(number) <= most)):
            raise UsageError(
                f"there is no compression '{text}'",
                hint="use zstd, zstd:1 to zstd:19, gzip, gzip:1 to :9, or none",
            )
        return Compression(kind, int(number or default))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.kind}:{self.level}" if self.level else self.kind

    @property
    def media_type(self) -> str:
        """Of a layer's descriptor."""
        return {"zstd": LAYER_ZSTD, "gzip": LAYER_GZIP, "none": LAYER_TAR}[self.kind]


@dataclass(frozen=True)
class Layer:
    """A stored layer: its blob, the digest of the tar in it, and that tar's size in bytes."""

    descriptor: Descriptor
    diff_id: str
    uncompressed: int


@dataclass(frozen=True)
class Frame:
    """Entries of a tar, compressed already: `file` is a zstd frame of whole blocks without the tar's end.

    `names` are those of its entries, relative to the root; folders are not among them.
    """

    file: Path
    names: frozenset[bytes]


def store_layer(
    tree: Path,
    below: Sequence[Path],
    layout: Layout,
    epoch: int,
    compression: Compression = Compression(),
    frames: Sequence[Frame] = (),
) -> Layer:
    """Write the layer that `tree` is into `layout`; times after `epoch` (seconds) become `epoch`.

    With `frames`, which only zstd takes, the blob is several zstd frames (RFC 8878, 3): folders, `frames` as
    they are, and the rest: what is in them is neither read from `tree` nor compressed again.

    `below` are the trees it stands on: overlayfs calls each new folder opaque, but a layer only needs to say
    so of one that hides another. Raises CellblockError when a file cannot be read, OSError when there
    is no room.
    """
    entries, removed = _entries(os.fsencode(tree), [os.fsencode(each) for each in below])
    with layout.writer() as blob:
        hashed = _Hash()
        if frames:
            folders = [path for path, is_folder in entries if is_folder]
            _compress(_without_end(_tar(tree, folders, [], epoch)), hashed, blob, compression)
            for frame in frames:
                _copy(frame, hashed, blob)
            written = frozenset[bytes]().union(*(frame.names for frame in frames))
            entries = [each for each in entries if not each[1] and each[0] not in written]
        _compress(_tar(tree, [path for path, _ in entries], removed, epoch), hashed, blob, compression)
        diff_id = hashed.digest()
    descriptor = Descriptor(compression.media_type, blob.digest, blob.size)
    return Layer(descriptor, diff_id, hashed.size)


def store_entries(
    tree: Path, entries: Sequence[bytes], layout: Layout, epoch: int, compression: Compression = Compression()
) -> Layer:
    """Write some `entries` of `tree`, sorted paths, as a layer into `layout`. As `store_layer` otherwise."""
    with layout.writer() as blob:
        hashed = _Hash()
        _compress(_tar(tree, entries, [], epoch), hashed, blob, compression)
        diff_id = hashed.digest()
    return Layer(Descriptor(compression.media_type, blob.digest, blob.size), diff_id, hashed.size)


def _compress(chunks: Iterable[bytes], hashed: _Hash, blob: BlobWriter, compression: Compression) -> None:
    with _compressor(blob, compression) as compressor:
        for chunk in chunks:
            hashed.update(chunk)
            compressor.write(chunk)


def _copy(frame: Frame, hashed: _Hash, blob: BlobWriter) -> None:
    """Append a frame as it is; its contents are only hashed."""
    import zstandard

    try:
        with frame.file.open("rb") as file:
            while chunk := file.read(_CHUNK):
                blob.write(chunk)
            file.seek(0)
            with zstandard.ZstdDecompressor().stream_reader(file) as stream:
                while chunk := stream.read(_CHUNK):
                    hashed.update(chunk)
    except zstandard.ZstdError as error:
        raise CellblockError(
            f"{frame.file}: cannot be written as a layer: {error}",
            hint="`build.py cache check`, then build again",
        ) from error


def _without_end(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """A tar of folders without the empty blocks that end it: its last entry is a header, which is none."""
    tar = b"".join(chunks)
    end = len(tar)
    while end and not tar[end - _BLOCK : end].strip(b"\0"):
        end -= _BLOCK
    yield tar[:end]


@contextmanager
def open_layer(blob: Path) -> Iterator[IO[bytes]]:
    """The tar in a stored blob, decompressed as its first bytes say (zstd, gzip or plain).

    Reading raises what the decompressor raises (ZstdError, OSError, EOFError) when the blob is damaged.
    """
    with blob.open("rb") as file:
        magic = file.read(4)
        file.seek(0)
        if magic == b"\x28\xb5\x2f\xfd":
            import zstandard

            with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream:
                yield cast("IO[bytes]", stream)
        elif magic[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file) as unzipped:
                yield cast("IO[bytes]", unzipped)
        else:
            yield file


class _Hash:
    """SHA-256 in a thread of its own: hashing and compressing use a core each."""

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.sha256()
        self._queue: Queue[bytes | None] = Queue(maxsize=8)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def update(self, data: bytes) -> None:
        self.size += len(data)
        self._queue.put(data)

    def digest(self) -> str:
        self._queue.put(None)
        self._thread.join()
        return f"sha256:{self._hash.hexdigest()}"

    def _work(self) -> None:
        while (data := self._queue.get()) is not None:
            self._hash.update(data)


class _Writer(Protocol):
    def write(self, data: bytes) -> int: ...


@contextmanager
def _compressor(blob: BlobWriter, compression: Compression) -> Iterator[_Writer]:
    if compression.kind == "zstd":
        import zstandard

        compressor = zstandard.ZstdCompressor(level=compression.level, threads=_ZSTD_THREADS)
        with compressor.stream_writer(blob, closefd=False) as writer:  # type: ignore[arg-type]
            yield writer
    elif compression.kind == "gzip":
        with gzip.GzipFile(fileobj=blob, mode="wb", compresslevel=compression.level, mtime=0) as file:  # type: ignore[call-overload]
            yield file
    else:
        yield blob


def _tar(tree: Path, entries: Sequence[bytes], removed: Sequence[bytes], epoch: int) -> Iterator[bytes]:
    """The bytes of a tar of `entries` of `tree`, and of markers for what is `removed`."""
    with tempfile.TemporaryDirectory(prefix="cellblock-layer-") as scratch:
        lists = []
        for name, paths in (("entries", entries), ("removed", removed)):
            lists.append(Path(scratch, name))
            lists[-1].write_bytes(b"".join(path + b"\0" for path in paths))
        whiteouts = Path(scratch, "whiteouts")
        whiteouts.mkdir()
        for path in removed:
            marker = whiteouts / os.fsdecode(path)
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch(0o600)
        argv = [
            *("tar", "--create", "--file=-", "--numeric-owner", "--format=pax", "--no-recursion"),
            *(f"--mtime=@{epoch}", "--clamp-mtime"),
            "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
            # Those that mean something in another kernel's container; overlayfs' own are not.
            *("--xattrs", "--xattrs-include=security.capability", "--xattrs-include=user.*"),
            *(f"--directory={tree}", "--null", f"--files-from={lists[0]}"),
            *(f"--directory={whiteouts}", f"--files-from={lists[1]}"),
        ]
        # One form of numbers and messages whatever the person's language is.
        environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        environment.pop("TAR_OPTIONS", None)
        # A line a file that cannot be read: a pipe would fill up, and nobody reads it meanwhile.
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,  # Ctrl-C at the terminal is for Cellblock, which ends it
            )
            assert process.stdout
            try:
                while chunk := process.stdout.read(_CHUNK):
                    yield chunk
            except BaseException:
                process.kill()
                raise
            finally:
                process.stdout.close()
                status = process.wait()
            if status != 0:
                raise CellblockError(
                    f"{tree}: cannot be written as a layer: {last_words(errors)}",
                    hint="free disk space, or build again",
                )


def last_words(errors: IO[bytes]) -> str:
    """The end of what a program wrote to the file `errors`."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - 1000))
    return errors.read().decode(errors="replace").strip()


def _entries(tree: bytes, below: Sequence[bytes]) -> tuple[list[tuple[bytes, bool]], list[bytes]]:
    """(paths to archive, with whether each is a folder; whiteouts to make), relative to `tree`, sorted."""
    entries: list[tuple[bytes, bool]] = []
    removed: list[bytes] = []

    def walk(folder: bytes, prefix: bytes) -> None:
        with os.scandir(folder) as found:
            children = sorted(found, key=lambda child: child.name)
        for child in children:
            name = prefix + child.name
            if child.is_dir(follow_symlinks=False):
                entries.append((name, True))
                if _opaque(child.path) and any(os.path.lexists(each + b"/" + name) for each in below):
                    removed.append(name + b"/" + OPAQUE.encode())
                walk(child.path, name + b"/")
            elif child.is_file(follow_symlinks=False) or child.is_symlink():
                entries.append((name, False))
            elif _is_whiteout(child.stat(follow_symlinks=False)):
                removed.append(prefix + WHITEOUT.encode() + child.name)
            elif not stat.S_ISSOCK(child.stat(follow_symlinks=False).st_mode):
                entries.append((name, False))

    walk(tree, b"")
    return entries, removed


def _opaque(folder: bytes) -> bool:
    with suppress(OSError):
        return os.getxattr(folder, "trusted.overlay.opaque", follow_symlinks=False) == b"y"
    return False


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
