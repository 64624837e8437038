"""The databases of the image that a volume was made from, also for volumes that older Cellblocks made.

Those kept no copy of them, and a copy can be damaged. The tree's are the users' by now: taken for the
image's, an upgrade would remove what users installed. Where users changed none, the manifest's digests say
so; else they come from the image that the volume was made from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from cellblock.errors import CellblockError
from cellblock.files import durable as records
from cellblock.jail.source import catalogue
from cellblock.jail.source.catalogue import Reading, control_digests
from cellblock.jail.source.find import find_source
from cellblock.jail.source.passing_folder import NOTE, passing_folder
from cellblock.jail.tree import controls
from cellblock.jail.tree.controls import Controls, DamagedControlsError
from cellblock.jail.volume.volume import Volume, VolumeState


def known_controls(volume: Volume, state: VolumeState) -> Controls:
    """The databases of the volume's image, without a look at the image. Raises CellblockError."""
    try:
        return controls.load(volume.private / "controls")
    except (FileNotFoundError, DamagedControlsError) as error:
        found, what = _unchanged(volume), _what(volume, error)
    if found is None:
        raise CellblockError(what, hint=_hint(volume, state))
    return found


def base_controls(
    volume: Volume,
    state: VolumeState,
    reading: Reading,
    notice: Callable[[str], None] = lambda text: None,
    source: str | None = None,
) -> Controls:
    """The databases of the volume's image. `source` is where that lies now, if it moved.

    With `reading.keep` they are put down where they were missing. Raises CellblockError.
    """
    path = volume.private / "controls"
    try:
        return controls.load(path)
    except (FileNotFoundError, DamagedControlsError) as error:
        what = _what(volume, error)
    notice(f"{what}: finding it again")
    found = _unchanged(volume) or _of_source(volume, state, reading, what, source or state.source.reference)
    if reading.keep:
        temporary = volume.private / "controls.new"
        temporary.unlink(missing_ok=True)
        controls.save(temporary, found)
        records.flush(temporary)
        temporary.replace(path)
        records.sync_directory(volume.private)
    return found


def _what(volume: Volume, error: Exception) -> str:
    if isinstance(error, DamagedControlsError):
        return f"{error.message}; it is the copy of its image's package database"
    return f"{volume.path} was made by an older Cellblock, which kept no copy of its image's package database"


def _hint(volume: Volume, state: VolumeState) -> str:
    return (
        f"name a copy of that image, {state.source.id}, once: "
        f"`jail verify {volume.path} --repair --source IMAGE`"
    )


def _unchanged(volume: Volume) -> Controls | None:
    """The tree's databases, if they are all still the image's."""
    expected = control_digests(volume.manifest)
    tree = controls.of_root(volume.root)
    if any(hashlib.sha256(tree.get(name, b"")).hexdigest() != digest for name, digest in expected.items()):
        return None
    return {name: tree[name] for name in expected}


def _of_source(volume: Volume, state: VolumeState, reading: Reading, what: str, reference: str) -> Controls:
    hint = _hint(volume, state)
    try:
        origin = find_source(reference)
        identity = origin.identify(state.source)
    except CellblockError as error:
        raise CellblockError(f"{what}, and the image is not to be had: {error}", hint=hint) from error
    if identity.id != state.source.id:
        raise CellblockError(
            f"{what}; it was made from {state.source}, and that is now {identity}", hint=hint
        )
    with passing_folder("cellblock-adopt-") as folder, origin.feed(folder / NOTE) as feeding:
        return catalogue.read(feeding, folder, reading, known=None).controls
