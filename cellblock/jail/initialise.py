# SPDX-License-Identifier: Apache-2.0
"""Prepares a volume in a cluster (`jail init`): does what is left to do, so the command can be repeated.

An empty volume is assembled. A volume with another image is upgraded if that is asked for, and refused
otherwise. An interrupted upgrade or restore is finished first. Then the volume is marked as ready
(`ready`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cellblock.errors import UsageError
from cellblock.events import Events
from cellblock.jail.apply import transaction
from cellblock.jail.assemble import Options, OtherSourceError, assemble
from cellblock.jail.upgrade import upgrade
from cellblock.jail.volume import ready
from cellblock.jail.volume.shards import Shard
from cellblock.jail.volume.volume import Volume
from cellblock.jail.volume.writer_lock import BusyError

_INDEX = "JOB_COMPLETION_INDEX"
"""Set by the Job controller in the pods of an Indexed Job."""
_POLL_S = 2.0


@dataclass(frozen=True)
class InitialiseOptions:
    """How. `shards`: how many pods fill the volume together.

    `upgrade`: whether a volume of another image is brought to this one, by the first of them. `drained`: no
    job uses it. `wait_s`: seconds to wait for another writer.
    """

    assemble: Options
    shards: int = 1
    upgrade: bool = False
    drained: bool = False
    wait_s: float = 0.0


@dataclass(frozen=True)
class Initialised:
    """The result: assembled, upgraded, nothing (it was there), or waiting for the shards in `waiting`."""

    done: str
    waiting: tuple[int, ...]
    ready: Path | None
    seconds: float


def shard_of(shards: int, environ: Mapping[str, str] = os.environ) -> Shard:
    """The shard of this pod, by the index that Kubernetes gave it. Raises UsageError."""
    index = environ.get(_INDEX, "")
    if shards == 1:
        return Shard()
    if not index.isdecimal() or int(index) >= shards:
        raise UsageError(
            f"--shards {shards}, and {_INDEX} is {index or 'not set'}",
            hint=f"run this in an Indexed Job with {shards} completions",
        )
    return Shard(int(index), shards)


def initialise(source: str, path: Path, events: Events, options: InitialiseOptions) -> Initialised:
    """Make the volume at `path` hold `source`. Raises CellblockError, UsageError."""
    started = time.monotonic()
    shard = shard_of(options.shards)
    deadline = started + options.wait_s
    while True:
        try:
            done, waiting = _once(source, path, events, options, shard)
            break
        except BusyError as error:
            if time.monotonic() >= deadline:
                raise
            events.info(f"{error.message}; trying again")
            time.sleep(_POLL_S)
    volume = Volume(path.absolute())
    marked = None if waiting or transaction.pending(volume) else ready.mark(volume)
    return Initialised(done, waiting, marked, time.monotonic() - started)


def _once(
    source: str, path: Path, events: Events, options: InitialiseOptions, shard: Shard
) -> tuple[str, tuple[int, ...]]:
    lossy = options.assemble.allow_lossy
    try:
        result = assemble(source, path, events, options=replace(options.assemble, shard=shard))
    except OtherSourceError:
        if not options.upgrade:
            raise
    else:
        volume = Volume(path.absolute())
        if not result.changed and transaction.pending(volume):
            upgrade(source, path, events, drained=options.drained, allow_lossy=lossy)
            return "upgraded", ()
        return ("assembled" if result.changed else "nothing"), result.waiting
    if shard.index:
        events.info("the volume is filled; the first shard upgrades it")
        return "nothing", tuple(range(1))
    upgrade(source, path, events, drained=options.drained, allow_lossy=lossy)
    return "upgraded", ()
