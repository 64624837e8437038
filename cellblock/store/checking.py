# SPDX-License-Identifier: Apache-2.0
"""Reads the whole cache and removes damaged files; they are fetched, unpacked or built again when needed.

`build.py cache check` calls it, and after_boot.py for the newest files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cellblock.events import Events, Progress
from cellblock.files.flock import locked
from cellblock.files.sha256 import sha256_of_file
from cellblock.oci.layer import WHITEOUT, open_layer
from cellblock.oci.layout import Layout
from cellblock.store.inventory import ItemKind, layout_of, remove_deb, remove_made, store_of
from cellblock.store.layer_records import collect_layers, layer_records
from cellblock.store.record import LayerRecord
from cellblock.store.work_folders import WorkFolders

SUBJECT = "cache"
"""Under this name checking appears among the events."""

# What tar says of a file whose time is another: times are cut when a layer is written.
_TIME_DIFFERS = b": Mod time differs\n"


@dataclass(frozen=True)
class Damaged:
    """What was removed: a deb, blob, tree or image by its name, and what was wrong with it."""

    kind: ItemKind | str
    name: str
    found: str


@dataclass(frozen=True)
class Checked:
    """How many debs, blobs and trees are whole, and what was not, files made of debs among it."""

    whole: int
    damaged: tuple[Damaged, ...]


def check(cache: Path, events: Events, waiting: Callable[[], None] | None = None) -> Checked:
    """Compare all debs and blobs with the SHA-256 that is their name, and all trees with their blobs.

    Waits for builds, calling `waiting` first. Raises MalformedImage when the index of images cannot be read.
    """
    layout, store = layout_of(cache), store_of(cache)
    with (
        layout.alone(waiting),
        locked(store.folder / "lock", waiting=waiting),
        events.step(SUBJECT, "check"),
    ):
        collect_layers(cache, layout)
        debs = sorted(store.folder.glob("sha256/*/*.deb"))
        blobs = sorted((layout.folder / "blobs" / "sha256").glob("*"))
        damaged = remove_damaged([*debs, *blobs], events)
        damaged += forget_incomplete(cache, layout)
        trees, bad_trees = _check_trees(cache, layout)
        whole = len(debs) + len(blobs) + trees - len(damaged)
        return Checked(whole, (*damaged, *bad_trees, *_remove_frames(debs)))


def remove_damaged(files: Iterable[Path], events: Events) -> list[Damaged]:
    """Remove those of `files` whose SHA-256 is not their name."""
    paths = list(files)
    total = sum(path.stat().st_size for path in paths)
    damaged, done = [], 0
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for path, found in zip(paths, pool.map(sha256_of_file, paths), strict=True):
            done += path.stat().st_size
            events.emit(Progress(SUBJECT, done, total))
            if found != path.stem:
                (remove_deb if path.suffix else Path.unlink)(path)
                damaged.append(Damaged("deb" if path.suffix else "blob", path.name, f"has SHA-256 {found}"))
    return damaged


def _remove_frames(debs: Iterable[Path]) -> list[Damaged]:
    """Remove what was made of a deb and cannot be read any more; the deb stays."""
    import zstandard

    damaged = []
    for deb in debs:
        try:
            with (
                deb.with_suffix(".files").open("rb") as file,
                zstandard.ZstdDecompressor().stream_reader(file) as stream,
            ):
                while stream.read(1 << 20):
                    pass
        except FileNotFoundError:
            continue
        except zstandard.ZstdError as error:
            remove_made(deb)
            damaged.append(Damaged("frame", deb.with_suffix(".files").name, f"cannot be read: {error}"))
    return damaged


def forget_incomplete(cache: Path, layout: Layout) -> list[Damaged]:
    """Forget images and layers of which a blob is not there."""
    gone = [Damaged("image", name, "lacks a blob") for name in layout.forget_incomplete()]
    collect_layers(cache, layout)
    return gone


def _check_trees(cache: Path, layout: Layout) -> tuple[int, list[Damaged]]:
    """How many trees are whole; those that are not are removed."""
    trees = [
        (path, record)
        for name, record in layer_records(cache / "layers")
        if (path := cache / "trees" / name).is_dir()
    ]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        found = list(pool.map(lambda tree: _tree_differs(layout, *tree), trees))
    damaged = []
    for (path, _), said in zip(trees, found, strict=True):
        if said:
            WorkFolders(cache / "work").discard(path)
            damaged.append(Damaged("tree", path.name, said))
    return len(trees) - len(damaged), damaged


def _tree_differs(layout: Layout, tree: Path, record: LayerRecord) -> str:
    """The first entry in which a tree is not its layer; "" when there is none."""
    argv = ["tar", "--compare", "--file=-", f"--directory={tree}", f"--exclude={WHITEOUT}*"]
    with tempfile.TemporaryFile() as said:
        environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=said, stderr=subprocess.STDOUT, env=environment
        )
        assert process.stdin
        # tar may end before it has read all.
        with suppress(BrokenPipeError), open_layer(layout.blob(record.digest)) as stream:
            shutil.copyfileobj(stream, process.stdin, 1 << 20)
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        said.seek(0)
        return next(
            (line.decode(errors="replace").strip() for line in said if not line.endswith(_TIME_DIFFERS)), ""
        )
