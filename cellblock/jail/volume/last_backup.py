# SPDX-License-Identifier: Apache-2.0
"""Remembers in a volume when its last backup was made and where it is, for `jail status`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.files import durable
from cellblock.jail.volume.volume import Volume

FOLDER = "backup"
"""In `.cellblock`: the listing, the name of the volume's snapshots, and what the last one was."""
_FILE = "last.json"


@dataclass(frozen=True)
class LastBackup:
    """A backup that was made: `repository` is without a login's password, `unread` counts files not in it."""

    snapshot: str
    name: str
    repository: str
    finished_at: str
    files: int
    bytes: int
    unread: int


def note(volume: Volume, made: LastBackup) -> None:
    """Write down `made`. Raises OSError."""
    durable.replace(_path(volume), json.dumps(asdict(made), indent=2) + "\n")


def read(volume: Volume) -> LastBackup | None:
    """Read what the last backup was; None when none was noted. Raises CellblockError for a damaged file."""
    path = _path(volume)
    try:
        return LastBackup(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise CellblockError(
            f"{path}: cannot be read as the record of a backup: {error}",
            hint="the next `jail backup VOLUME REPO` writes it anew; with --list it asks the repository",
        ) from error


def now() -> str:
    """This moment, as records have it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _path(volume: Volume) -> Path:
    return volume.private / FOLDER / _FILE
