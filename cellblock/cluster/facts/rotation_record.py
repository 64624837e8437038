# SPDX-License-Identifier: Apache-2.0
"""Records a rotation of a cluster's secrets until it is over: rotation.json in the cluster's folder.

A rotation replaces secrets. The record is written before a secret is changed, so that after an interruption
at any moment it says what is left to do. It holds no secret.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from cellblock.cluster.definition.names import name_option
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError
from cellblock.files import durable

Secret = Literal["tokens", "database", "logins", "hosts", "munge", "slurm"]
Phase = Literal["waiting", "begun", "renewed"]


@dataclass(frozen=True)
class RotationRecord:
    """A rotation of the secrets `asked`, of which those `left` are to be done.

    `phase` is that of the first one left. waiting: nothing of it is changed. begun: some daemons may have the
    new one and others the old one. renewed: all have the new one, and nodes may still be drained.
    """

    name: str
    asked: tuple[Secret, ...]
    left: tuple[Secret, ...]
    phase: Phase = "waiting"

    @property
    def command(self) -> str:
        """The command line that goes on with it."""
        return f"build.py cluster rotate {' '.join(self.asked)}{name_option(self.name)}"


def read(name: str) -> RotationRecord | None:
    """The rotation of cluster `name` that is not over. Raises CellblockError."""
    path = _path(name)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return RotationRecord(kept["name"], tuple(kept["asked"]), tuple(kept["left"]), kept["phase"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CellblockError(
            f"{path}: cannot be read as the record of a rotation: {error!r}",
            hint=f"remove the file, then `build.py cluster rotate all{name_option(name)}`",
        ) from error


def write(record: RotationRecord) -> None:
    """Keep `record`: after a crash there is the old file or the new one."""
    durable.write(_path(record.name), json.dumps(asdict(record), indent=2), mode=0o600)


def remove(name: str) -> None:
    """Forget the rotation: it is over."""
    path = _path(name)
    if path.exists():
        path.unlink()
        durable.sync_directory(path.parent)


def refuse_unfinished(name: str, what: str) -> None:
    """Raise CellblockError, which says `what`, when a secret of the cluster is half new."""
    record = read(name)
    if record is not None and record.phase != "waiting":
        raise CellblockError(
            f"cluster {name}: the rotation of {', '.join(record.left)} was interrupted: {what}",
            hint=f"`{record.command}` ends it",
        )


def _path(name: str) -> Path:
    return state.folder(name) / state.ROTATION
