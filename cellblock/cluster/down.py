# SPDX-License-Identifier: Apache-2.0
"""Ends a cluster for `build.py down`: its containers, and with --purge all data that it kept."""

from __future__ import annotations

from cellblock.cluster.definition.names import name_option
from cellblock.cluster.facts import state
from cellblock.cluster.local import stop
from cellblock.cluster.up_request import volume_path
from cellblock.events import Events
from cellblock.jail.tree.removal import remove_tree
from cellblock.jail.volume.volume import Volume


def take_down(name: str, events: Events, *, purge: bool) -> bool:
    """Stop cluster `name`, and with `purge` delete its jail volume, too. Returns whether anything ran.

    Raises CellblockError when this machine neither runs nor keeps anything of such a cluster, while an `up`
    of it is at work, and with `purge` while anybody writes its jail: nothing is stopped then.
    """
    state.refuse_during_up(name, "it would go on after `down`")
    if purge or not state.is_recorded(name):
        _refuse_while_written(name)
    stopped = stop(name, events, purge=purge)
    kept = state.folder(name).is_dir()
    if not stopped and not kept:
        raise state.no_such_cluster(name, "see `build.py clusters`")
    if purge:
        with state.locked(name):
            _delete(name, events)
    return stopped


def _refuse_while_written(name: str) -> None:
    """Raise BusyError, which names the writer, while one is at work in the jail of cluster `name`."""
    volume = Volume(volume_path(name))
    if volume.private.is_dir():
        with volume.lock(f"build.py down{name_option(name)}"):
            pass


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
    # Users' files are in it, which may be a thousand folders deep.
    remove_tree(folder)
