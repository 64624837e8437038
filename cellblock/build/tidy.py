# SPDX-License-Identifier: Apache-2.0
"""Removes from a layer's tree what must not be in an image: logs, caches, files of one machine.

layer_builder.py calls it before it stores the layer. engine/apt.py lists the leftovers of apt and dpkg.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from cellblock.engine import apt


def tidy(upper: Path, per_machine: Iterable[str] = ()) -> None:
    """Remove leftovers from a layer's tree, and files that fit `per_machine`, patterns below `/`."""
    patterns = (*apt.LEFTOVERS, *(pattern.lstrip("/") for pattern in per_machine))
    for pattern in patterns:
        for path in upper.glob(pattern):
            if not inside(path, upper):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif not is_whiteout(path):
                path.unlink()
    for name in apt.IDENTITIES:
        identity = upper / name
        if identity.is_file() and not identity.is_symlink() and inside(identity, upper):
            identity.write_bytes(b"")


def inside(path: Path, upper: Path) -> bool:
    """Whether real folders lead to `path`: a symbolic link (/var/run) leads to this machine's files."""
    return path.parent.resolve() == upper.resolve() / path.parent.relative_to(upper)


def is_whiteout(path: Path) -> bool:
    """Whether `path` is overlayfs' mark for what is removed."""
    status = path.lstat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def mark_automatic(upper: Path, architecture: str, packages: Iterable[str]) -> None:
    """Write apt's record of packages that nobody asked for: autoremove takes them with what needs them.

    apt itself would note what it drew in; here it is told each package by name.
    """
    states = upper / "var/lib/apt/extended_states"
    states.parent.mkdir(parents=True, exist_ok=True)
    stanzas = [
        f"Package: {name}\nArchitecture: {architecture}\nAuto-Installed: 1\n"
        for name in sorted(set(packages))
    ]
    states.write_text("\n".join(stanzas) + ("\n" if stanzas else ""), encoding="utf-8")
    states.chmod(0o644)
