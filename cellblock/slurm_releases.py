# SPDX-License-Identifier: Apache-2.0
"""Says which release of Slurm reads what an earlier one wrote: state files, the database and messages.

Source: Slurm's Upgrade Guide, "Compatibility window" (https://slurm.schedmd.com/upgrades.html, read in the
copy that ships with 24.11.5): a release is compatible with the two major releases before it, and since 24.11
with the three before it. Nothing is read backwards.
"""

from __future__ import annotations

from cellblock.errors import UsageError

MAJOR = (
    *("20.02", "20.11", "21.08", "22.05", "23.02", "23.11"),
    *("24.05", "24.11", "25.05", "25.11", "26.05"),
)
"""Slurm's major releases, the oldest first."""

_THREE_SINCE = "24.11"


def readable(release: str) -> tuple[str, ...]:
    """The earlier releases, the oldest first, whose state, database and messages `release` reads.

    Empty for a release that is not in MAJOR.
    """
    if release not in MAJOR:
        return ()
    place = MAJOR.index(release)
    return MAJOR[max(place - (3 if release >= _THREE_SINCE else 2), 0) : place]


def direct_steps(old: str, new: str) -> tuple[str, ...]:
    """The releases to upgrade to from `old`, one after the other, to come to `new`; each step is direct.

    As few as there can be. Empty when there is no way: downwards, or for a release that is not in MAJOR.
    """
    if old not in MAJOR or new not in MAJOR or old >= new:
        return ()
    steps: list[str] = []
    while old != new:
        old = max(one for one in MAJOR if one <= new and old in readable(one))
        steps.append(old)
    return tuple(steps)


def refuse_indirect(old: str, new: str, *, way_back: str) -> None:
    """Raise UsageError unless Slurm `new` reads what `old` wrote. `way_back` says how a downgrade is done."""
    if new == old or old in readable(new):
        return
    if new < old:
        raise UsageError(
            f"Slurm {new} does not read what {old} wrote: there is no downgrade of a cluster", hint=way_back
        )
    reads = ", ".join(readable(new)) or "no other"
    said = f"Slurm {new} does not read what {old} wrote: it reads {reads}"
    steps = direct_steps(old, new)
    if not steps:
        raise UsageError(said, hint=f"releases that are known: {', '.join(MAJOR)}")
    way = " -> ".join((old, *steps))
    raise UsageError(said, hint=f"the direct steps are {way}: upgrade to one after the other")
