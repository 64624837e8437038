# SPDX-License-Identifier: Apache-2.0
"""Carries out a build: keeps images that exist by their key, and makes the others side by side.

prepare.py comes before it; scheduler.py makes the layers, or docker_build.py the images.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cellblock import paths
from cellblock.build.image_plan import ImagePlan
from cellblock.build.layer_builder import LayerMaker, Settings
from cellblock.build.prepare import Prepared, prepare
from cellblock.build.references import KEPT_BUILDS, key_prefix
from cellblock.build.request import BuildRequest, BuildResult
from cellblock.build.scheduler import DirectBuild, build_layers
from cellblock.build.unpack_packages import Opened
from cellblock.engine import apt
from cellblock.engine.recipe import BuiltImage
from cellblock.engine.storage import ContainersStorage, image_id
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events, SubjectState
from cellblock.lock.model import LockedPackage
from cellblock.oci.layout import Layout, StoredImage
from cellblock.packages.repository import write_repository
from cellblock.packages.store import PackagesGone, PackageStore
from cellblock.packages.unpacked_deb import Unpacker
from cellblock.privilege import require_root
from cellblock.process import Programs
from cellblock.store.after_boot import check_after_boot
from cellblock.store.image_store import ImageStore, image_store
from cellblock.store.layer_records import collect_layers
from cellblock.store.record import read_record


def build_images(request: BuildRequest, events: Events) -> BuildResult:
    """Build what `request` names, with all it needs.

    Raises DefinitionError and UsageError before anything is done; StepFailed (the first) after the
    builds running beside it were ended; FetchFailed when a package cannot be had; Interrupted on Ctrl-C.
    """
    started = time.monotonic()
    if request.engine == "docker":
        from cellblock.build.docker_build import build_with_docker  # it imports docker

        return build_with_docker(request, events)
    if request.engine == "buildah":
        raise UsageError(
            "the engine 'buildah' is now called 'native': it never built with buildah",
            hint="leave --engine out, or give --engine native; --load copies the images to buildah's storage",
        )
    if request.engine != "native":
        raise UsageError(f"there is no engine '{request.engine}'", hint="use one of: native, docker")
    try:
        return _build(prepare(request, events), events, started)
    except PackagesGone:
        if request.locked or request.update:
            raise
        # The archive has moved on since this machine looked: what is there now is what to build from.
        events.info("a mirror no longer has what this machine resolved earlier: asking for what it has now")
        return _build(prepare(replace(request, update=True), events), events, started)


def _build(prepared: Prepared, events: Events, started: float) -> BuildResult:
    # Files that are made beside what programs unpack have the modes meant here, not the person's.
    os.umask(0o022)
    layout = image_store()
    check_after_boot(paths.cache(), events)
    with layout.writing():
        result, is_named_anew = _build_into(layout, prepared, events, started)
    if is_named_anew:
        _forget_old(layout, [prepared.plans[name] for name in prepared.wanted], prepared, events)
    return result


def _build_into(
    layout: Layout, prepared: Prepared, events: Events, started: float
) -> tuple[BuildResult, bool]:
    """Returns the images, and whether one of them has a key that the store did not have."""
    programs = Programs()
    storage = ContainersStorage(programs)
    plans = [prepared.plans[name] for name in prepared.wanted]
    known = layout.references()
    is_new = any(plan.key_reference not in known for plan in plans)
    # Going back to an earlier definition makes nothing; what is remembered of the image must go back, too.
    forgotten = any(
        (record := read_record(plan.name, prepared.variant.name)) is None
        or record.key != plan.key.digest
        or record.digest != known[plan.key_reference].digest
        or record.shaped_by != prepared.shaped_by.get(plan.name, ())
        for plan in plans
        if plan.key_reference in known
    )
    fetched = Provider(prepared, events)
    images: dict[str, StoredImage] = {}
    built: tuple[str, ...] = ()
    if is_new or forgotten:
        require_root("an image keeps the owners of its files, which only root can set")
        maker = layer_maker(prepared, layout, programs, fetched)
        maker.sweep()
        build = direct_build(prepared, maker, layout, events, programs, fetched.stopped)
        if prepared.request.cache:
            from cellblock.oci.cache import RegistryCache

            build = replace(build, cache=RegistryCache(prepared.request.cache, layout, events))
        finished = build_layers(build, plans)
        images, built = dict(finished.images), finished.built
    else:
        for plan in plans:
            images[plan.name] = layout.stored(known[plan.key_reference])
            layout.note_use(images[plan.name].digest)
            # Somebody gave the name to another image: the key decides what it stands for.
            named = known.get(plan.reference)
            if named is None or named.digest != images[plan.name].digest:
                layout.tag(images[plan.name].descriptor, [plan.reference])
            events.emit(SubjectState(plan.name, "cached", plan.reference))
    load = prepared.request.load
    if load:
        _load(storage, layout, [plan for plan in plans if load is True or plan.name in load], images, events)
    result = BuildResult(
        prepared.variant,
        {plan.name: _built(plan, images[plan.name], prepared) for plan in plans},
        built,
        time.monotonic() - started,
        fetched.seconds,
    )
    return result, is_new


def layer_maker(
    prepared: Prepared, layout: Layout, programs: Programs, provide: Provider, folder: Path | None = None
) -> LayerMaker:
    """What makes the layers of `prepared`; `folder` (default: the cache) holds trees and records."""
    request = prepared.request
    settings = Settings(
        epoch=prepared.epoch,
        compression=request.compression,
        provide=provide,
        sources=prepared.sources,
        keep_failed=request.keep_failed,
    )
    return LayerMaker(folder or paths.cache(), layout, prepared.variant, settings, programs)


def direct_build(
    prepared: Prepared,
    maker: LayerMaker,
    layout: Layout,
    events: Events,
    programs: Programs,
    stopped: threading.Event,
) -> DirectBuild:
    """How the layers of `prepared` are made."""
    return DirectBuild(
        maker=maker,
        layout=layout,
        events=events,
        programs=programs,
        variant=prepared.variant.name,
        epoch=prepared.epoch,
        compression=prepared.request.compression,
        lock_digest=prepared.lock_digest,
        reproduce=prepared.reproduce,
        go_on=prepared.request.go_on or f"go on with: {prepared.reproduce('')}",
        stopped=stopped,
        sites=prepared.sites,
        shaped_by=prepared.shaped_by,
    )


def package_store() -> PackageStore:
    """The machine's package store, which takes debs apart as images need them."""
    return PackageStore(paths.packages(), Unpacker(apt.DPKG_EXCLUDES))


class Provider:
    """Makes flat archives of locked packages, which it fetches first; knows how long fetching took."""

    def __init__(self, prepared: Prepared, events: Events) -> None:
        self._prepared = prepared
        self._events = events
        self._store = package_store()
        self.stopped = threading.Event()
        self.seconds = 0.0

    def __call__(self, packages: Sequence[LockedPackage], folder: Path) -> list[Opened]:
        """Make `folder`, which must not exist, the archive of `packages`; returns them taken apart."""
        started = time.monotonic()
        absent = any(not self._store.has(package) for package in packages)
        if absent:
            self._prepared.extras.ensure(self._events)
        with self._store.hold():
            self._store.fetch(packages, self._prepared.archives, self._events, self.stopped)
            if absent:
                self.seconds += time.monotonic() - started
            write_repository(packages, self._store, folder)
            return [
                Opened(package, deb, files)
                for package, (deb, files) in zip(
                    packages, self._store.unpacked(packages, folder), strict=True
                )
            ]


def _load(
    storage: ContainersStorage,
    layout: Layout,
    plans: Sequence[ImagePlan],
    images: Mapping[str, StoredImage],
    events: Events,
) -> None:
    """Have the images where buildah and podman find them."""
    present = storage.images()
    for plan in plans:
        image = images[plan.name]
        there = present.get(plan.reference)
        if there is None or there.id != image_id(image):
            with events.step(plan.name, "load into the storage of buildah and podman"):
                # By its key: somebody may have given the plain name to another build meanwhile.
                storage.load(layout, plan.key_reference, plan.reference)


def _built(plan: ImagePlan, image: StoredImage, prepared: Prepared) -> BuiltImage:
    return BuiltImage(plan.reference, image_id(image), image.size, prepared.epoch)


def _forget_old(layout: ImageStore, plans: Sequence[ImagePlan], prepared: Prepared, events: Events) -> None:
    """Forget all but the newest builds of each image, and then what nothing leads to any more."""
    known = layout.references()
    gone: list[str] = []
    for plan in plans:
        prefix = key_prefix(plan.name, prepared.variant)
        # A name given again stands last in the index: the order is that of the builds.
        builds = [name for name in known if name.startswith(prefix)]
        gone += builds[: -KEPT_BUILDS or None]
    try:
        if gone:
            layout.untag(gone)
        layout.forget_checkouts()
        layout.collect_garbage(lambda: collect_layers(paths.cache(), layout))
    except CellblockError as error:
        # The images are built; room is made another time.
        events.warning(f"old builds cannot be removed: {error}")


def copy_images(result: BuildResult, folder: Path, names: Sequence[str] = ()) -> None:
    """Copy images of a build (none named: all) to the OCI layout `folder`, under the names `IMAGE:VARIANT`.

    Raises UsageError for images that an engine built into a storage of its own.
    """
    store = image_store()
    known = store.references()
    images = {name: image for name, image in result.images.items() if not names or name in names}
    for name, image in images.items():
        if image.reference not in known:
            raise UsageError(
                f"image {name} is in the storage of an engine, not in a layout",
                hint="build with --engine native, or copy it with skopeo",
            )
    tags = {f"{name}:{result.variant.name}": image.reference for name, image in images.items()}
    try:
        store.copy_to(tags, Layout(folder))
    except OSError as error:
        if error.filename is not None:
            raise
        raise CellblockError(  # a write(2) names no path
            f"{folder}: {error.strerror}",
            hint="free some space there (`df -h`), or name another folder; then run this again",
        ) from error
