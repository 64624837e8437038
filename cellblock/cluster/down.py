# SPDX-License-Identifier: Apache-2.0
"""Ends a cluster: its containers, and with `purge` all that it kept."""

from __future__ import annotations

import shutil

from cellblock.cluster.definition.names import name_option
from cellblock.cluster.facts import state
from cellblock.cluster.local import stop
from cellblock.events import Events


def take_down(name: str, events: Events, *, purge: bool) -> bool:
    """Stop cluster `name`, and with `purge` delete its jail volume, too. Returns whether anything ran.

    Raises CellblockError when this machine neither runs nor keeps anything of such a cluster.
    """
    stopped = stop(name, events)
    kept = state.folder(name).is_dir()
    if not stopped and not kept:
        raise state.no_such_cluster(name, f"start one: `build.py up{name_option(name)}`")
    if purge:
        with state.locked(name):
            _delete(name, events)
    return stopped


def delete_unused(name: str, events: Events) -> None:
    """Delete what a cluster kept that never ran; one that another `up` has started meanwhile stays.

    Raises CellblockError when another process starts or stops it.
    """
    with state.locked(name):
        if state.read(name) is None:
            _delete(name, events)


def _delete(name: str, events: Events) -> None:
    folder = state.folder(name)
    events.info(f"deleting {folder}")
    shutil.rmtree(folder)
