# SPDX-License-Identifier: Apache-2.0
"""Gives Python the C code in native/layers, which writes an image's layers, or a directory, as a tree.

This module turns C's structs into typed values and its error struct into `ImageError`.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cellblock.errors import CellblockError
from cellblock.jail.tree.unsupported import Loss

try:
    from cellblock._image_core import ffi, lib
    from cellblock.jail.source.known_digests import KnownDigests
except ImportError as error:  # an installation without a compiler
    raise CellblockError(
        f"the image core is not compiled ({error})",
        hint="install gcc, libssl-dev, libzstd-dev, zlib1g-dev and the headers of Python, "
        "then run: pip install -e .",
    ) from error

Fault = Literal["system", "source", "lossy", "changed", "cancelled", "limit", "absent"]
_FAULTS: dict[int, Fault] = {
    lib.IMAGE_FAULT_NONE: "system",
    lib.IMAGE_FAULT_SYSTEM: "system",
    lib.IMAGE_FAULT_SOURCE: "source",
    lib.IMAGE_FAULT_LOSSY: "lossy",
    lib.IMAGE_FAULT_CHANGED: "changed",
    lib.IMAGE_FAULT_CANCELLED: "cancelled",
    lib.IMAGE_FAULT_LIMIT: "limit",
    lib.IMAGE_FAULT_ABSENT: "absent",
}

_LOSSES: dict[int, str] = {
    lib.IMAGE_LOSS_OWNER: "owners",
    lib.IMAGE_LOSS_MODE: "modes",
    lib.IMAGE_LOSS_TIME: "times",
    lib.IMAGE_LOSS_CAPABILITY: "file capabilities",
    lib.IMAGE_LOSS_ACL: "ACLs",
    lib.IMAGE_LOSS_ATTRIBUTE: "extended attributes",
    lib.IMAGE_LOSS_DEVICE: "device nodes",
    lib.IMAGE_LOSS_FIFO: "fifos",
    lib.IMAGE_LOSS_SYMLINK: "symbolic links",
    lib.IMAGE_LOSS_HARDLINK: "hard links",
}
"""The names of `LOSSES`, by enum image_loss."""

_HINTS: dict[Fault, str] = {
    "changed": "run this again when nobody writes to the source",
    "source": "copy or pull the source again, and verify it",
    "limit": "change the image, and run this again",
}


class ImageError(CellblockError):
    """The core refused or failed.

    `path` is the one in the image that is meant (empty: none), `number` the errno (0: no call failed),
    `layer` the number of the layer that was read, from the top (-1: none).
    """

    def __init__(self, text: str, *, fault: Fault, path: str, number: int, layer: int) -> None:
        super().__init__(text)
        self.fault = fault
        self.path = path
        self.number = number
        self.layer = layer

    def for_users(self, state: str) -> BaseException:
        """Return the exception to raise for users. `state` says what became of the volume."""
        hint = _HINTS.get(self.fault)
        if hint:
            return CellblockError(f"{self}; {state}", hint=hint)
        if self.number:
            return OSError(self.number, os.strerror(self.number), "/" + self.path if self.path else None)
        return self


@dataclass(frozen=True)
class LayerBytes:
    """A layer to read: its name for messages and the SHA-256 that its bytes must have (None: unknown).

    `open` gives a descriptor of its bytes, compressed or not, that the core closes. `listing` is a
    descriptor of what `listings` keeps of it, which is then read instead (-1: there is none); `list_to` one
    of a new file for that (-1: not wanted). Both stay the caller's.
    """

    name: str
    digest: str | None
    open: Callable[[], int]
    listing: int = -1
    list_to: int = -1


@dataclass(frozen=True)
class Written:
    """Progress in bytes of the source read, in bytes and files written; `kept` were there already."""

    read: int
    bytes: int
    files: int
    kept: int


@dataclass(frozen=True)
class Summary:
    """Summary of a manifest: number of entries, bytes of its regular files, SHA-256 of its last line."""

    entries: int
    bytes: int
    digest: str


@dataclass(frozen=True)
class Pick:
    """Selects content to write into a folder, each under its digest as name, instead of a tree.

    `digests` are sorted, the first 8 bytes of each: what to write if `wanted`, else what not to. Of paths
    that begin like one of `always` everything is written.
    """

    digests: array[int] | KnownDigests
    wanted: bool = False
    always: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Target:
    """Where and how to write: the descriptor of a folder that only root can enter, and of how many threads.

    `resume`: the folder may hold what an earlier run wrote from the same source. `lossy`: what the
    filesystem cannot hold is counted and not an error. Of `shards` parts this writes number `shard`. With
    `pick` no tree is written but some files' content.
    """

    root: int
    jobs: int
    resume: bool = False
    lossy: bool = False
    shard: int = 0
    shards: int = 1
    pick: Pick | None = None


class _Calls:
    """Functions that the core calls back; their exceptions are raised once the core has stopped."""

    def __init__(self, layers: Sequence[LayerBytes], progress: Callable[[int], None]) -> None:
        self.layers = layers
        self.progress = progress
        self.error: BaseException | None = None

    def open_layer(self, layer: int) -> int:
        try:
            return self.layers[layer].open()
        except BaseException as error:
            self.error = self.error or error
            return -1

    def tell(self, read: int) -> int:
        try:
            self.progress(read)
        except BaseException as error:
            self.error = self.error or error
            return -1
        return 0


def _escaped(kind: object, error: BaseException, traceback: Any) -> None:
    """Keep an exception of a callback outside its `try`: Ctrl-C is raised where Python code begins to run.

    cffi would print it, and the core would go on. What is returned instead, -1, stops the core.
    """
    calls: _Calls = ffi.from_handle(traceback.tb_frame.f_locals["context"])
    calls.error = calls.error or error


@ffi.def_extern(error=-1, onerror=_escaped)  # type: ignore[untyped-decorator]
def cellblock_image_open_layer(context: Any, layer: int) -> int:
    """See struct image_layers_request."""
    calls: _Calls = ffi.from_handle(context)
    return calls.open_layer(layer)


@ffi.def_extern(error=-1, onerror=_escaped)  # type: ignore[untyped-decorator]
def cellblock_image_progress(context: Any, read: int) -> int:
    """See struct image_layers_request."""
    calls: _Calls = ffi.from_handle(context)
    return calls.tell(read)


class Assembly:
    """One tree that is being written. See `assembling`."""

    def __init__(self, pointer: Any, calls: _Calls) -> None:
        self._pointer = pointer
        self._calls = calls
        self._error = ffi.new("struct image_error *")

    @property
    def layers(self) -> tuple[LayerBytes, ...]:
        """The layers, the lowest first; none for a directory."""
        return tuple(reversed(self._calls.layers))

    def run(self) -> None:
        """Read the source and write the files. Raises ImageError, or what a callback raised."""
        layer = ffi.new("int *", -1)
        if lib.image_assembly_run(self._pointer, layer, self._error):
            self._fail(layer[0])

    def seal(self) -> None:
        """Give the directories their owners, modes, times and attributes. Raises ImageError."""
        if lib.image_assembly_seal(self._pointer, self._error):
            self._fail(-1)

    def write_manifest(self, path: Path, *, part: bool = False) -> Summary:
        """Write the manifest, or with `part` this shard's lines, to a new file. The last to be called."""
        summary = ffi.new("struct image_summary *")
        with path.open("xb") as file:
            if lib.image_assembly_manifest(self._pointer, file.fileno(), part, summary, self._error):
                self._fail(-1)
        return Summary(summary.entries, summary.bytes, ffi.string(summary.digest).decode())

    def written(self) -> Written:
        """How far it is; may be asked from any thread."""
        found = lib.image_assembly_progress(self._pointer)
        return Written(found.read, found.written, found.files, found.kept)

    def losses(self) -> list[Loss]:
        """Return what the target could not hold."""
        found = [(what, lib.image_assembly_lost(self._pointer, number)) for number, what in _LOSSES.items()]
        return [Loss(what, one.count, "/" + _text(one.first)) for what, one in found if one.count]

    def _fail(self, layer: int) -> None:
        if self._calls.error:
            raise self._calls.error
        error = self._error
        path, message = _text(error.path), _text(error.message)
        name = f"{self._calls.layers[layer].name}: " if 0 <= layer < len(self._calls.layers) else ""
        fault = _FAULTS[error.fault]
        where = f"/{path.lstrip('/')}: " if path else ""
        raise ImageError(
            f"{name if fault == 'source' or not where else ''}{where}{message}",
            fault=fault,
            path=path,
            number=error.number,
            layer=layer,
        )


def _text(field: Any) -> str:
    found: bytes = ffi.string(field)
    return found.decode("utf-8", "backslashreplace")


@contextmanager
def assembling(
    source: Sequence[LayerBytes] | Path,
    target: Target,
    progress: Callable[[int], None],
    records: Path,
) -> Iterator[Assembly]:
    """Prepare to write a source: layers, the lowest first, or a directory.

    `progress` is called with the bytes read of the source, ten times a second at most. `records` is a
    folder on a local filesystem for files without a name: about 100 bytes for each file of the tree.
    """
    layers = [] if isinstance(source, Path) else list(reversed(source))
    calls = _Calls(layers, progress)
    handle = ffi.new_handle(calls)
    kept: list[Any] = [handle]

    def text(value: str | bytes | None) -> Any:
        if value is None:
            return ffi.NULL
        kept.append(ffi.new("char[]", value if isinstance(value, bytes) else value.encode()))
        return kept[-1]

    listed = ffi.new("struct image_layer[]", max(1, len(layers)))
    for number, layer in enumerate(layers):
        listed[number].name = text(layer.name.encode("utf-8", "replace"))
        listed[number].digest = text(layer.digest)
        listed[number].listing, listed[number].list_to = layer.listing, layer.list_to
    request = ffi.new("struct image_request *")
    directory = request.directory
    directory.root, directory.jobs = target.root, target.jobs
    directory.resume, directory.lossy = target.resume, target.lossy
    directory.shard, directory.shards = target.shard, target.shards
    if target.pick is not None:
        pick = ffi.new("struct image_pick *")
        prefixes = ffi.new("char *[]", [text(prefix) for prefix in target.pick.always])
        among = target.pick.digests
        if isinstance(among, KnownDigests):
            pick.starts, pick.file, pick.count = among.starts, among.file, among.count
        else:
            values = ffi.from_buffer("uint64_t[]", among)
            pick.digests, pick.count = values, len(among)
            kept.append(values)
        kept += [pick, prefixes, among]
        pick.wanted = target.pick.wanted
        pick.always, pick.n_always = prefixes, len(target.pick.always)
        directory.pick = pick
    request.records_folder = text(os.fsencode(records))
    request.source = text(os.fsencode(source)) if isinstance(source, Path) else ffi.NULL
    request.layers.layers, request.layers.n_layers = listed, len(layers)
    request.layers.open_layer = lib.cellblock_image_open_layer
    request.layers.progress = lib.cellblock_image_progress
    request.layers.context = handle
    error = ffi.new("struct image_error *")
    pointer = lib.image_assembly_new(request, error)
    if pointer == ffi.NULL:
        raise ImageError(_text(error.message), fault="system", path="", number=error.number, layer=-1)
    try:
        yield Assembly(pointer, calls)
    finally:
        lib.image_assembly_free(pointer)
