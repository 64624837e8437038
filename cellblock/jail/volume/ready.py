# SPDX-License-Identifier: Apache-2.0
"""Writes the file `ready` beside `root/`, which tells the nodes of a cluster that a volume is ready.

A worker may start before the volume is filled. The presence of `root/` says that there is a jail; this file
says which one, and that the Job that was to fill or upgrade it is done. It has one line, the image's id, a
space and its reference, and is replaced by rename. Unlike `.cellblock` everybody can read it, because a
node may see the volume with root squashed. Users cannot write it: the volume's folder belongs to root.
"""

from __future__ import annotations

import os
from pathlib import Path

from cellblock.files.durable import put, sync_directory
from cellblock.jail.volume.volume import Volume

NAME = "ready"


def mark(volume: Volume) -> Path:
    """Write the file for what the volume holds now. Raises CellblockError, OSError."""
    state = volume.state()
    assert state is not None
    path, new = volume.path / NAME, volume.path / f".{NAME}-{os.getpid()}"
    text = f"{state.source.id} {state.source.reference}\n"
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return path
    put(new, text, mode=0o644)
    new.replace(path)
    sync_directory(volume.path)
    return path
