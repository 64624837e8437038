# SPDX-License-Identifier: Apache-2.0
"""Records an upgrade of a cluster's Slurm: upgrade.json in the cluster's folder.

It is written before anything is changed, and kept afterwards, because going back to the old release needs it.
`up` and `down` refuse to work while an upgrade is unfinished: they cannot deal with daemons of two releases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from cellblock.cluster.definition.model import EngineName
from cellblock.cluster.definition.names import name_option
from cellblock.cluster.facts import state
from cellblock.errors import CellblockError
from cellblock.files import durable

_FILE = "upgrade.json"
_MARK = "cellblock-release"

Phase = Literal["upgrading", "done", "going back"]


@dataclass(frozen=True)
class UpgradeRecord:
    """An upgrade from `old_variant`, Slurm `old_release`, to `new_variant`, Slurm `new_release`.

    `backup` is the file that the way back restores, `file` the cluster file of before, and `jail_number` the
    number of the last entry in the jail's history before. `addresses` maps host names to the addresses that
    their containers keep.
    """

    name: str
    old_variant: str
    old_release: str
    new_variant: str
    new_release: str
    engine: EngineName
    backup: str
    jail_number: int
    file: Mapping[str, Any]
    phase: Phase = "upgrading"
    addresses: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    """Name of an image -> the new one: what goes on later goes on with the same."""
    jail_done: bool = False

    @property
    def back_command(self) -> str:
        """The command line that takes the cluster back."""
        return f"build.py cluster upgrade --back{name_option(self.name)}"

    @property
    def command(self) -> str:
        """The command line that goes on with what is under way."""
        if self.phase == "going back":
            return self.back_command
        return f"build.py cluster upgrade --variant {self.new_variant}{name_option(self.name)}"


def read(name: str) -> UpgradeRecord | None:
    """The last upgrade of cluster `name` that was not taken back. Raises CellblockError."""
    path = _path(name)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return UpgradeRecord(**{one.name: kept[one.name] for one in fields(UpgradeRecord)})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CellblockError(
            f"{path}: cannot be read as the record of an upgrade: {error!r}",
            hint="restore the file from a backup of the machine; the cluster's own backup lies beside it: "
            f"{path.parent}/before-upgrade-*.tar",
        ) from error


def write(record: UpgradeRecord) -> None:
    """Keep `record`: after a crash there is the old file or the new one."""
    durable.write(_path(record.name), json.dumps(asdict(record), indent=2), mode=0o600)


def remove(name: str) -> None:
    """Forget the upgrade: the cluster is what it was before."""
    _path(name).unlink(missing_ok=True)
    durable.sync_directory(state.folder(name))


def refuse_under_way(name: str, what: str) -> None:
    """Raise CellblockError, which says `what` cannot be, while an upgrade of the cluster is under way."""
    record = read(name)
    if record is None or record.phase == "done":
        return
    back = "" if record.phase == "going back" else f"; `{record.back_command}` takes the cluster back"
    doing = "is being taken back" if record.phase == "going back" else "is being upgraded"
    raise CellblockError(
        f"cluster {name} {doing} (Slurm {record.old_release}, variant {record.old_variant}, and Slurm "
        f"{record.new_release}, variant {record.new_variant}): {what}",
        hint=f"`{record.command}` goes on{back}",
    )


def state_release(folder: Path) -> str | None:
    """The newest release that slurmctld's state in a cluster's folder was written by; None when it says none.

    The controller's role writes it (images/controller).
    """
    try:
        return (folder / "slurmctld" / _MARK).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _path(name: str) -> Path:
    return state.folder(name) / _FILE
