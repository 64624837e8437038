# SPDX-License-Identifier: Apache-2.0
"""Prepares a build: loads definitions, resolves packages into the lock, has image_plan.py plan each image.

No image is built here. But resolving packages asks the archives, writes a lock below CELLBLOCK_CACHE, and may
compile a variant's Slurm first, because its packages are resolved, too.

Without `--locked` the packages are those of a lock of this machine's own, kept in the cache. It is made anew
when images ask for other packages than before, when a mirror no longer has one, or with `--update`. So a
build a week later with the same definitions has nothing to do, and a build with a new package takes the
newest versions of all packages.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace

from cellblock import paths
from cellblock.build.extra_archives import ExtraArchives, extra_archives, of_images, resolve_with
from cellblock.build.image_plan import ImagePlan, plan_images
from cellblock.build.layer_graph import ToolVersions, plan_nodes
from cellblock.build.mirrors import archive, mirrors_of_lock, package_archives
from cellblock.build.rendering import (
    RenderedImage,
    lock_requests,
    refuse_unavailable,
    render_images,
    render_packages,
)
from cellblock.build.request import BuildRequest
from cellblock.cache_key import digest_of
from cellblock.errors import CellblockError, UsageError
from cellblock.events import Events
from cellblock.lock.archives import PackageArchive
from cellblock.lock.file import lock_path, read_lock, write_lock
from cellblock.lock.model import Lock, LockedImage
from cellblock.lock.resolve import Request
from cellblock.overrides import overrides_text, shaped_by
from cellblock.project import Project
from cellblock.text.rfc3339 import seconds
from cellblock.variants import Variant


@dataclass(frozen=True)
class Prepared:
    """All that is known before anything is made. `epoch` is SOURCE_DATE_EPOCH in seconds."""

    request: BuildRequest
    variant: Variant
    wanted: tuple[str, ...]
    """The images asked for, and those they need."""
    lock: Lock
    lock_digest: str
    archives: tuple[PackageArchive, ...]
    extras: ExtraArchives
    """What is to be made before anything is."""
    sources: tuple[str, ...]
    """The sources.list(5) lines that people find in an image: not those that only builds have."""
    epoch: int
    sites: tuple[str, ...]
    """The folders of a site's own definitions."""
    shaped_by: Mapping[str, tuple[str, ...]]
    """Image -> those of them that declare it, or what it needs."""
    plans: Mapping[str, ImagePlan]

    def reproduce(self, image: str) -> str:
        """The command by which a person repeats the build of an image ("": of all that was asked for)."""
        return self.request.command(self.variant.name, *([image] if image else self.request.images))


class NotResolved(CellblockError):
    """Which packages the images hold would have to be asked for."""


def prepare(request: BuildRequest, events: Events, *, offline: bool = False) -> Prepared:
    """Plan what `request` asks for; raises NotResolved when archives would have to be asked and `offline`.

    Raises DefinitionError and UsageError when definitions, lock or request are wrong, CellblockError
    when packages must be looked up and no archive answers.
    """
    project = Project(request.definitions, request.sites)
    variant = project.variant(request.variant)
    order = project.in_order(request.images)
    refuse_unavailable(project.variants, variant, order)
    for sentence in overrides_text(project.images):
        events.info(sentence)
    wanted = tuple(image.name for image in order)
    source = archive(variant, request.mirrors)
    extras = extra_archives(variant, source, events, update=request.update)
    # All images of the definitions: layers are planned over all.
    rendered = render_images(variant, project.all_in_order())
    lock, archives = _lock(request, project, variant, rendered, extras, events, offline)
    epoch = _epoch(lock)
    nodes = plan_nodes(
        rendered,
        lock,
        ToolVersions(_tool_versions()),
        epoch,
        str(request.compression),
        cuda_packages=_cuda_packages(variant, rendered),
        relock=f"python3 build.py lock {variant.name}{project.options}",
    )
    return Prepared(
        request=request,
        variant=variant,
        wanted=wanted,
        lock=lock,
        lock_digest=lock.packages_digest,
        archives=archives,
        extras=extras,
        sources=tuple(each.line for each in of_images(lock.archives)),
        epoch=epoch,
        sites=tuple(map(str, project.folders)),
        shaped_by={name: shaped_by(name, project.images) for name in project.images if project.folders},
        plans=plan_images(rendered, nodes),
    )


def _lock(
    request: BuildRequest,
    project: Project,
    variant: Variant,
    rendered: Mapping[str, RenderedImage],
    extras: ExtraArchives,
    events: Events,
    offline: bool,
) -> tuple[Lock, tuple[PackageArchive, ...]]:
    """The lock to build from, and the archives to fetch its packages from."""
    if request.locked:
        path = lock_path(request.locks or project.locks, variant)
        if not path.is_file():
            raise UsageError(
                f"{path}: there is no lock of {variant.name}",
                hint=f"make it with: python3 build.py lock {variant.name}{project.options}",
            )
        lock = read_lock(path)
        return lock, extras.here(mirrors_of_lock(lock, _archives_here(request, variant)))
    all_requests = lock_requests(rendered)
    # Images that add no package are no question to apt: declaring one must not change what others hold.
    requests = {
        name: replace(each, parent=_with_packages(each.parent, all_requests))
        for name, each in all_requests.items()
        if each.packages or each.parent is None
    }
    asked = {name: (each.parent, each.packages) for name, each in requests.items()}
    places = [*archive(variant, request.mirrors).lines, *(each.line for each in extras.archives)]
    known = digest_of([asked, places, variant.distribution.model_dump(), variant.arch.debian])
    path = paths.cache() / "resolved" / f"{variant.name}-{known[:16]}.lock.yaml"
    if path.is_file() and not request.update:
        lock = read_lock(path)
    elif offline:
        raise NotResolved(
            f"the packages of {variant.name} were not resolved for these definitions and mirrors",
            hint=f"python3 build.py build -v {variant.name}{project.options}",
        )
    else:
        lock = resolve_with(extras, variant, package_archives(variant, request.mirrors), requests, events)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_lock(lock, path)
    return _with_all_images(lock, all_requests), extras.here(lock.archives)


def _with_packages(name: str | None, requests: Mapping[str, Request]) -> str | None:
    """The image `name`, or the nearest that it is made from and that adds packages."""
    while name is not None and not requests[name].packages and requests[name].parent is not None:
        name = requests[name].parent
    return name


def _with_all_images(lock: Lock, requests: Mapping[str, Request]) -> Lock:
    """`lock` with the images that add no package, each holding what its parent holds."""
    images: dict[str, LockedImage] = {}
    for name, request in requests.items():
        known = lock.images.get(name)
        held = known.packages if known else images[request.parent or ""].packages
        images[name] = LockedImage(name, request.parent, tuple(sorted(request.packages)), held)
    return replace(lock, images=images)


def _archives_here(request: BuildRequest, variant: Variant) -> tuple[PackageArchive, ...]:
    """This machine's mirrors; none when only the tool's default is known, for the lock has that."""
    if request.mirrors or archive(variant).lines:
        return package_archives(variant, request.mirrors)
    return ()


def _epoch(lock: Lock) -> int:
    """SOURCE_DATE_EPOCH of the environment (reproducible-builds.org), else the lock's date."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        if not given.isdigit():
            raise UsageError(
                f"SOURCE_DATE_EPOCH is '{given}'", hint="set it to seconds since 1970, or unset it"
            )
        return int(given)
    return seconds(lock.date) if lock.date else 0


def _tool_versions() -> dict[str, str]:
    """Versions of what writes a layer's bytes beside the packages themselves."""
    import zstandard

    query = ["dpkg-query", "--show", "--showformat=${Package} ${Version}\n", "mmdebstrap", "tar"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=False)
        found = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    except FileNotFoundError:
        found = {}  # no Debian: the layers' digests tell whether its tools write the same
    return {**found, "zstandard": zstandard.__version__}


def _cuda_packages(variant: Variant, rendered: Mapping[str, RenderedImage]) -> frozenset[str]:
    """What images ask for in this variant and would not without CUDA."""
    if not variant.cuda:
        return frozenset()
    plain = render_packages(replace(variant, cuda=None), [each.image for each in rendered.values()])
    return frozenset(
        package for name, each in rendered.items() for package in set(each.packages) - set(plain[name])
    )
