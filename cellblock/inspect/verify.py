# SPDX-License-Identifier: Apache-2.0
"""Builds an image again from nothing, and says whether every byte is the same (`build.py verify`).

compare.py finds the bytes that differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cellblock import paths
from cellblock.build.prepare import prepare
from cellblock.build.request import BuildRequest
from cellblock.build.run import Provider, direct_build, layer_maker
from cellblock.build.scheduler import build_layers
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.inspect.compare import Difference, compare_images
from cellblock.oci.layout import Layout
from cellblock.overrides import images_options
from cellblock.process import Programs
from cellblock.store.image_store import image_store
from cellblock.store.work_folders import WorkFolders


@dataclass(frozen=True)
class Verified:
    """What was found of one image: its digest, that of the second build, and every entry that differs."""

    digest: str
    again: str
    differences: tuple[Difference, ...]


def verify_images(request: BuildRequest, events: Events) -> Mapping[str, Verified]:
    """Build the images of `request` again in a folder of their own and compare; what is built stays.

    Nothing of the first build is used but the lock and the debs. Raises CellblockError when an image was
    not built from the inputs of now, and what a build raises.
    """
    prepared = prepare(request, events)
    store = image_store()
    known = store.references()
    plans = [prepared.plans[name] for name in request.images or prepared.wanted]
    for plan in plans:
        if plan.key_reference not in known:
            options = images_options(request.sites)
            raise CellblockError(
                f"image {plan.name} of {prepared.variant.name} is not built from the inputs of now",
                hint=f"`build.py why {plan.name}{options}` names what changed; build it, then verify it",
            )
    programs = Programs()
    work = WorkFolders(paths.cache() / "work")
    work.sweep()
    with store.writing(), work.new() as folder:
        # The same below another name, at another time: neither may be in the bytes.
        layout = Layout(folder / "images")
        provide = Provider(prepared, events)
        maker = layer_maker(prepared, layout, programs, provide, folder)
        build = direct_build(prepared, maker, layout, events, programs, provide.stopped)
        again = build_layers(replace(build, remember=False), plans).images
        found = {}
        for plan in plans:
            first, second = store.stored(known[plan.key_reference]), again[plan.name]
            differences = compare_images(store, first, layout, second)
            found[plan.name] = Verified(first.digest, second.digest, tuple(differences))
        return found
