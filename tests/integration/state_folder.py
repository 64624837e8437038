# SPDX-License-Identifier: Apache-2.0
"""Chooses where a cluster of tests has its state, and removes the cluster that a killed run left."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from cellblock.cluster import stop
from cellblock.errors import CellblockError
from cellblock.events import Events

# The jail keeps owners, ACLs and device nodes: not on a tmpfs that may lack them.
_WHERE = Path("/var/tmp")
_PREFIX = "cellblock-test-"
# Locked as long as the run lives that made the folder, in whatever way it ends (flock(2)).
_OWNER = "owner"


@contextmanager
def state_folder() -> Iterator[Path]:
    """A new folder, which is CELLBLOCK_STATE meanwhile."""
    remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_WHERE))
    with (folder / "new").open("w") as owner, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(owner, fcntl.LOCK_EX)
        # Seen by others from now on, when it is locked already.
        (folder / "new").rename(folder / _OWNER)
        patch.setenv("CELLBLOCK_STATE", str(folder))
        yield folder
        shutil.rmtree(folder)


def remove_abandoned() -> None:
    """Clusters of runs that were killed: they hold memory, ports and a share of both cores for ever."""
    for owner in _WHERE.glob(f"{_PREFIX}*/{_OWNER}"):
        with ExitStack() as stack:
            try:
                descriptor = os.open(owner, os.O_RDWR | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (FileNotFoundError, BlockingIOError):
                continue
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setenv("CELLBLOCK_STATE", str(owner.parent))
            for cluster in (owner.parent / "clusters").glob("*"):
                with suppress(CellblockError):
                    stop(cluster.name, Events(), purge=True)
            shutil.rmtree(owner.parent, ignore_errors=True)
