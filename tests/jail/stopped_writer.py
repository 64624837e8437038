# SPDX-License-Identifier: Apache-2.0
"""Runs a writer that seems to be on another host, stops it in its work, and continues it later.

Tests let another writer finish meanwhile, and see that the stopped one notices that its lock is lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LEASE_S = 1.0
"""Of these writers; the fixture `short_lease` gives it to this process too."""
READING = "reading"
"""The moment at which the image core first says how far it is."""

_PROGRAM = f"""
import dataclasses, functools, sys
from pathlib import Path
from cellblock.errors import CellblockError
from cellblock.events import Events, Progress, StepStarted
from cellblock.jail.assemble import Options, assemble
from cellblock.jail.backup.repository import find_repository
from cellblock.jail.backup.restore import RestoreOptions, restore
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import upgrade
from cellblock.jail.verify import verify
from cellblock.jail.volume import volume, writer_lock
from cellblock.jail.volume.shards import Shard
writer_lock.fcntl.lockf = lambda *a: None
volume.WriterLock = functools.partial(writer_lock.WriterLock, lease_s={LEASE_S})
volume.myself = lambda what: dataclasses.replace(writer_lock.myself(what), boot="another-host")
command, moment, place, source, shard = sys.argv[1:]

def stop(event):
    # The core tells its progress before it reads on; what it has read by then may still be written.
    reading = moment == "{READING}" and isinstance(event, Progress)
    if reading or (isinstance(event, StepStarted) and event.step == moment):
        print("there", flush=True)
        sys.stdin.readline()

events = Events()
events.subscribe(stop)
try:
    {{"assemble": lambda: assemble(
         source, Path(place), events, options=Options(jobs=4, shard=Shard.parse(shard))),
     "upgrade": lambda: upgrade(source, Path(place), events),
     "rollback": lambda: rollback(Path(place), events),
     "repair": lambda: verify(Path(place), events, content=True, repair=True),
     "restore": lambda: restore(Path(place), find_repository(source), events, RestoreOptions(replace=True)),
    }}[command]()
    print("done")
except CellblockError as error:
    print(error)
"""


@contextmanager
def stopped_writer(
    command: str, moment: str, place: Path, source: str, shard: str = "0/1"
) -> Iterator[subprocess.Popen[str]]:
    """Start the `command` on the volume at `place`; it waits at the `moment`: READING or a step."""
    argv = [sys.executable, "-c", _PROGRAM, command, moment, str(place), source, shard]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        os.kill(process.pid, signal.SIGSTOP)
        yield process


def wake(process: subprocess.Popen[str]) -> str:
    """Have the writer go on to its end; returns what it said."""
    os.kill(process.pid, signal.SIGCONT)
    said, _ = process.communicate("\n" * 1000)
    return said
