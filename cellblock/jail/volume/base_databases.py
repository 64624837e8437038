# SPDX-License-Identifier: Apache-2.0
"""Loads the dpkg and account databases of the image that a volume was made from, as upgrades need them.

The copy is `.cellblock/controls`. The tree's own databases cannot replace it: users have changed them, and an
upgrade that took them for the image's would remove what users installed. If the copy is missing or damaged,
the tree's are used where the manifest's digests show that nobody changed them; otherwise they are read from
the image again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from cellblock.errors import CellblockError
from cellblock.files import durable
from cellblock.jail.source import scan
from cellblock.jail.source.find import find_source
from cellblock.jail.source.image import NOTE
from cellblock.jail.source.scan import Reading, database_digests
from cellblock.jail.source.scratch_dir import scratch_dir
from cellblock.jail.tree import databases
from cellblock.jail.tree.databases import DamagedDatabasesError, SystemDatabases
from cellblock.jail.volume.volume import Volume, VolumeState


def known_databases(volume: Volume, state: VolumeState) -> SystemDatabases:
    """Load the databases of the volume's image without reading the image. Raises CellblockError."""
    try:
        return databases.load(volume.private / "controls")
    except (FileNotFoundError, DamagedDatabasesError) as error:
        found, what = _unchanged(volume, state), _what(volume, error)
    if found is None:
        raise CellblockError(what, hint=_hint(volume, state))
    return found


def base_databases(
    volume: Volume,
    state: VolumeState,
    reading: Reading,
    notice: Callable[[str], None] = lambda text: None,
    source: str | None = None,
) -> SystemDatabases:
    """Load the databases of the volume's image. `source` names the image's new location, if it moved.

    With `reading.keep` the missing copy is written again. Raises CellblockError.
    """
    path = volume.private / "controls"
    try:
        return databases.load(path)
    except (FileNotFoundError, DamagedDatabasesError) as error:
        what = _what(volume, error)
    notice(f"{what}: finding it again")
    found = _unchanged(volume, state) or _of_source(
        volume, state, reading, what, source or state.source.reference
    )
    if reading.keep:
        temporary = volume.private / "controls.new"
        temporary.unlink(missing_ok=True)
        databases.save(temporary, found)
        durable.flush(temporary)
        temporary.replace(path)
        durable.sync_directory(volume.private)
    return found


def _what(volume: Volume, error: Exception) -> str:
    found = (
        error.message
        if isinstance(error, DamagedDatabasesError)
        else f"{volume.private / 'controls'} is missing"
    )
    return f"{found}; it is the copy of its image's package database"


def _hint(volume: Volume, state: VolumeState) -> str:
    if state.source.is_adopted:
        return (
            f"`jail restore {volume.path} REPO` brings the records back; without a backup, adopt the tree "
            f"again: mv {volume.private} {volume.private}.old && jail adopt {volume.path}"
        )
    return (
        f"name a copy of that image, {state.source.id}, once: "
        f"`jail verify {volume.path} --repair --source IMAGE`"
    )


def _unchanged(volume: Volume, state: VolumeState) -> SystemDatabases | None:
    """The tree's databases, if they are all still the image's. No manifest of an adopted tree lists them."""
    if state.source.is_adopted:
        return None
    expected = database_digests(volume.manifest)
    tree = databases.of_root(volume.root)
    if any(hashlib.sha256(tree.get(name, b"")).hexdigest() != digest for name, digest in expected.items()):
        return None
    return {name: tree[name] for name in expected}


def _of_source(
    volume: Volume, state: VolumeState, reading: Reading, what: str, reference: str
) -> SystemDatabases:
    hint = _hint(volume, state)
    if state.source.is_adopted:
        raise CellblockError(f"{what}, and no image has it: the tree was adopted", hint=hint)
    try:
        origin = find_source(reference)
        identity = origin.identify(state.source)
    except CellblockError as error:
        raise CellblockError(f"{what}, and the image is not to be had: {error}", hint=hint) from error
    if identity.id != state.source.id:
        raise CellblockError(
            f"{what}; it was made from {state.source}, and that is now {identity}", hint=hint
        )
    with scratch_dir("cellblock-databases-") as folder, origin.feed(folder / NOTE) as stream:
        return scan.read(stream, folder, reading, known=None).databases
