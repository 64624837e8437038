# SPDX-License-Identifier: Apache-2.0
"""Removes old snapshots of one volume from its restic repository, by how many are to be kept.

`jail backup` calls it when it is given options such as --keep-daily. Snapshots of other volumes stay.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from cellblock.events import Events
from cellblock.jail.backup.restic import TAG, Restic, ResticError


@dataclass(frozen=True)
class Keep:
    """How many of the newest to keep, and of the newest of each hour, day, week, month and year."""

    last: int = 0
    hourly: int = 0
    daily: int = 0
    weekly: int = 0
    monthly: int = 0
    yearly: int = 0

    def arguments(self) -> list[str]:
        """Build the arguments of `restic forget`; empty when all snapshots stay."""
        values = ((one.name, getattr(self, one.name)) for one in fields(self))
        return [text for name, value in values if value for text in (f"--keep-{name}", str(value))]


def retain(restic: Restic, name: str, keep: Keep, events: Events) -> int:
    """Remove the snapshots of the volume `name` that `keep` does not keep; returns how many.

    A repository that another uses at the moment is left as it is, with a warning: the next run does it.
    """
    rules = keep.arguments()
    if not rules:
        return 0
    try:
        # Not grouped: one volume's snapshots are one row, wherever it was mounted and whatever its image was.
        done = restic.run(
            *("forget", "--json", "--tag", f"{TAG},volume:{name}", "--group-by", "", "--prune", *rules)
        )
    except ResticError as error:
        if error.kind != "locked":
            raise
        events.warning(f"old snapshots were not removed: {error.message}; the next backup tries again")
        return 0
    line = next((line for line in done.output.splitlines() if line.startswith("[")), "[]")
    return sum(len(group.get("remove") or []) for group in json.loads(line))
