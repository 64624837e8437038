"""What tells the nodes of a cluster that a volume is ready: the file `ready` beside `root/`.

A worker may be up before the volume is filled. `root/` appears whole or not at all, so its presence says
that there is a jail; this file says which one, and that the Job that was to fill or upgrade it is done. One
line: the image's id, a space, its reference; replaced by rename. Readable by all, unlike `.cellblock`: a
node may see the volume with its root squashed. Users cannot write it: the volume's folder is root's.
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
