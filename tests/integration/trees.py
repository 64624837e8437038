# SPDX-License-Identifier: Apache-2.0
"""Reads root filesystems as data, to compare what different builders made of one definition."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker


@dataclass(frozen=True)
class Entry:
    """One path of a tree; all that an image says of it but times."""

    kind: str
    mode: str
    owner: tuple[int, int]
    content: str
    """SHA-256 of a file, target of a link, numbers of a device."""
    xattrs: tuple[tuple[str, bytes], ...]


def entries(root: Path) -> dict[str, Entry]:
    """Every path below `root`, and `root` itself as "."; hard links are files."""
    found = {".": entry(root)}
    for directory, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(directory, name)
            found[str(path.relative_to(root))] = entry(path)
    return found


def entry(path: Path) -> Entry:
    status = path.lstat()
    kind = stat.filemode(status.st_mode)[0]
    content = ""
    if kind == "-":
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    elif kind == "l":
        content = str(path.readlink())
    elif kind in "bc":
        content = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    names = (name for name in os.listxattr(path, follow_symlinks=False) if not _of_the_driver(name))
    xattrs = tuple(sorted((name, os.getxattr(path, name, follow_symlinks=False)) for name in names))
    mode = "" if kind == "l" else oct(stat.S_IMODE(status.st_mode))
    return Entry(kind, mode, (status.st_uid, status.st_gid), content, xattrs)


def differences(one: dict[str, Entry], other: dict[str, Entry]) -> list[str]:
    """A line for each path that is not the same in both."""
    return [
        f"{path}: {one.get(path, 'absent')} | {other.get(path, 'absent')}"
        for path in sorted({*one, *other})
        if one.get(path) != other.get(path)
    ]


@contextmanager
def buildah_root(reference: str) -> Iterator[Path]:
    """The root of an image of buildah's storage."""
    container = _output("buildah", "from", "--pull-never", reference)
    try:
        yield Path(_output("buildah", "mount", container))
    finally:
        _output("buildah", "rm", container)


@contextmanager
def docker_root(client: docker.DockerClient, reference: str, folder: Path) -> Iterator[Path]:
    """The root of an image of a daemon with the overlay2 driver, mounted read-only at the empty `folder`.

    Not by `docker export`, which leaves extended attributes out and adds what containers get.
    """
    layers = overlay_layers(client, reference)
    # One layer alone is no overlay: an empty one stands above it.
    empty = folder.with_name(folder.name + ".empty")
    empty.mkdir()
    lower = ":".join([str(empty), *layers])
    subprocess.run(["mount", "-t", "overlay", "-o", f"ro,lowerdir={lower}", "overlay", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def overlay_layers(client: docker.DockerClient, reference: str) -> list[str]:
    """Folders of an image's layers in the daemon's overlay2, the uppermost first."""
    data: dict[str, Any] = client.images.get(reference).attrs["GraphDriver"]["Data"]
    lower = data.get("LowerDir", "")
    # Their real names are too long for one mount(2); the short ones are links beside them.
    folders = [data["UpperDir"], *(lower.split(":") if lower else [])]
    return [_short(Path(folder)) for folder in folders]


def _short(diff: Path) -> str:
    link = diff.parent / "link"
    return str(diff.parent.parent / "l" / link.read_text().strip()) if link.is_file() else str(diff)


def _of_the_driver(name: str) -> bool:
    return name.startswith("trusted.overlay.")


def _output(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
