# SPDX-License-Identifier: Apache-2.0
"""Measures `jail assemble` of many small files beside `tar -x`: there the processor is the limit.

Each run writes to a new ext4 in memory. An ext4 whose last tree was just removed is slower by half: it passes
over each inode that was freed a moment ago.
"""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cellblock.bench.inputs.volume_sources import TAR, assemble_command
from cellblock.events import Events

FILES, FOLDERS = 300_000, 1_500
_SIZES = 16, 3_000
"""Bytes of the smallest file and of the largest."""
_DISK_BYTES = 3 << 30


def small_files_cost(work: Path, rounds: int, events: Events) -> dict[str, list[float]]:
    """Seconds of `tar`, `tar_flushed` and `assemble`, which flushes, for FILES files in FOLDERS folders.

    By round. Needs 4 GB of memory and 1 GB below `work`. One round more than `rounds` is run and not counted.
    """
    archive = work / "small.tar"
    with events.step("volume", f"make a tar of {FILES} small files"):
        _make_archive(archive)
    times: dict[str, list[float]] = {"tar": [], "tar_flushed": [], "assemble": []}
    for number in range(rounds + 1):
        # In turns, so that neither always has the warmer memory.
        for name in sorted(("tar", "assemble"), reverse=bool(number % 2)):
            step = events.step("volume", f"small files: {name}, round {number}")
            with step, _disk(work / "memory") as disk:
                seconds, flushed = _timed(name, archive, disk / "target")
            if number:
                times[name].append(seconds)
            if number and name == "tar":
                times["tar_flushed"].append(flushed)
    archive.unlink()
    return times


def _timed(name: str, archive: Path, target: Path) -> tuple[float, float]:
    """Seconds, without and with flushing what was written."""
    target.mkdir()
    os.sync()
    began = time.monotonic()
    command = {
        "tar": [*TAR, "-C", str(target), "-xf", str(archive)],
        "assemble": assemble_command(str(archive), target),
    }[name]
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.monotonic() - began
    os.sync()
    return seconds, time.monotonic() - began


def _make_archive(archive: Path) -> None:
    chosen = random.Random(1)
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for folder in range(FOLDERS):
            directory = tarfile.TarInfo(f"usr/share/{folder:04}")
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
            for number in range(FILES // FOLDERS):
                entry = tarfile.TarInfo(f"{directory.name}/{number:03}")
                entry.size = chosen.randint(*_SIZES)
                tar.addfile(entry, io.BytesIO(chosen.randbytes(entry.size)))


@contextmanager
def _disk(folder: Path) -> Iterator[Path]:
    """A new ext4 whose blocks are in memory, mounted below `folder` for the time of the block."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", str(folder)], check=True)
    try:
        image, place = folder / "image", folder / "mount"
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(_DISK_BYTES)
        whole = "lazy_itable_init=0,lazy_journal_init=0"
        made = ["mkfs.ext4", "-q", "-F", "-N", str(FILES + 50_000), "-E", whole, str(image)]
        subprocess.run(made, check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
        try:
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()
