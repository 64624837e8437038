# SPDX-License-Identifier: Apache-2.0
"""Gives this checkout of Cellblock an id, because image names that it built mean nothing to other checkouts.

The file `.cellblock-checkout` holds a random id and the folder that it was made for. A copy of it has
another folder, and a new clone in the same folder has no file: both get an id of their own.
"""

from __future__ import annotations

import os
import re
import secrets
import zlib
from pathlib import Path

from cellblock import paths

FILE = ".cellblock-checkout"
_LINE = re.compile(r"([0-9a-f]{12}) (.+)\n")


def identity(project: Path | None = None) -> str:
    """Twelve hexadecimal digits. A checkout that cannot be written has those of its folder's name."""
    folder = str(project or paths.PROJECT)
    path = Path(folder) / FILE
    known = _read(path, folder)
    if known:
        return known
    part = path.with_name(f"{FILE}.{os.getpid()}")
    try:
        part.write_text(f"{secrets.token_hex(6)} {folder}\n", encoding="utf-8", errors="surrogateescape")
        try:
            # Of two that begin at once, one id counts. What is there is a copy's, or broken.
            if path.exists():
                part.replace(path)
            else:
                os.link(part, path)
        except FileExistsError:
            pass
        finally:
            part.unlink(missing_ok=True)
    except OSError:
        pass
    return _read(path, folder) or f"{zlib.crc32(os.fsencode(folder)):012x}"


def is_there(identity: str, folder: str) -> bool:
    """Whether `folder` is still the checkout with that identity."""
    return _read(Path(folder) / FILE, folder) == identity


def _read(path: Path, folder: str) -> str | None:
    try:
        found = _LINE.fullmatch(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return None
    return found[1] if found and found[2] == folder else None
