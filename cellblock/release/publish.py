# SPDX-License-Identifier: Apache-2.0
"""Decides what `build.py push` sends: which built images, from where, under which names.

An image IMAGE of a variant goes to REPOSITORY/IMAGE:VARIANT, or with --tag to REPOSITORY/IMAGE:TAG.
`cellblock.oci.push` sends them.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cellblock import paths
from cellblock.attest.subject import Subject
from cellblock.build.references import reference
from cellblock.definition import Image, default_images
from cellblock.errors import UsageError
from cellblock.events import Events, SubjectState
from cellblock.files import durable
from cellblock.graph import check_known
from cellblock.oci.join import join
from cellblock.oci.layout import Layout, StoredImage
from cellblock.oci.model import DOCKER_LIST, INDEX, Descriptor, Index, Platform
from cellblock.oci.push import Item, push
from cellblock.oci.registry.client import Registry
from cellblock.oci.registry.connection import ConnectionOptions
from cellblock.oci.registry.reference import Reference, check_tag
from cellblock.project import Project
from cellblock.release.attesting import AttestRequest, pulled_as
from cellblock.release.signing import attest_pushed, sign_joined
from cellblock.release.subjects import chosen, name_in, open_source, refuse_other_definitions
from cellblock.variants import Variant

BeforePush = Callable[[Sequence[Subject]], None]
"""Sees every image before the first byte is sent, and raises CellblockError to have none sent (the audit)."""

ARCHITECTURES = ("amd64", "arm64")


@dataclass(frozen=True)
class PublishRequest:
    """What to push where.

    `images` by name (none: what a build makes by default and a cluster runs) of `variant` (none: the newest
    stable one of the host).
    `source` is "store" (what `build.py build` made), "engine" (the container engine's storage) or oci:DIR.
    `tags` replace the variant's name. With `per_architecture` each tag gets the image's architecture at its
    end, for `publish_indexes` to join.
    """

    repository: str
    images: tuple[str, ...] = ()
    variant: str | None = None
    tags: tuple[str, ...] = ()
    source: str = "store"
    per_architecture: bool = False
    referrers: bool = True
    jobs: int = 4
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    before_push: BeforePush | None = None
    spread: bool = False
    """Whether each image's files are divided into layers by package first (`release.spreading`)."""
    attest: AttestRequest | None = None
    """What to attach to the images before they are sent; signatures are for the names that the push gives."""
    definitions: Path = field(default_factory=lambda: paths.PROJECT / "images")
    sites: tuple[Path, ...] = ()
    """Folders of a site's own definitions (`--images`)."""


@dataclass(frozen=True)
class PublishedImage:
    """An image in a registry. `size` is in bytes, of all its platforms."""

    name: str
    repository: str
    """HOST/PATH."""
    tags: tuple[str, ...]
    digest: str
    size: int
    platforms: tuple[Platform, ...]
    changed: bool
    """Whether a tag was moved."""
    sent: int = 0
    """Bytes of blobs that were sent now, mounted from another repository, there before."""
    mounted: int = 0
    present: int = 0
    referrers: int = 0

    def to_json(self) -> dict[str, Any]:
        """As the file of digests has it: what a deployment needs."""
        return {
            "image": self.repository,
            "tag": self.tags[0],
            "tags": list(self.tags),
            "digest": self.digest,
            "reference": f"{self.repository}@{self.digest}",
            "size": self.size,
            "platforms": ["/".join(filter(None, (p.os, p.architecture, p.variant))) for p in self.platforms],
        }


@dataclass(frozen=True)
class Published:
    """What a push did; `seconds` in all, of which `push_s` with the registry."""

    images: tuple[PublishedImage, ...]
    seconds: float
    push_s: float

    def digests(self) -> dict[str, Any]:
        """The file of digests: one entry an image, by its name."""
        return {image.name: image.to_json() for image in self.images}


def publish(request: PublishRequest, events: Events) -> Published:
    """Push the images of `request`; no tag is moved before all of them are there.

    Raises UsageError for names that do not exist, CellblockError for what is not built, RegistryError, and
    whatever `before_push` raises.
    """
    started = time.monotonic()
    target = _target(request)
    variant, names = _chosen(request)
    for tag in request.tags:
        check_tag(tag)

    def choose(present: set[str]) -> list[str]:
        return chosen(names, names, variant, present, request.source, events)

    with (
        open_source(request.source, variant, choose, events, compress=True) as (layout, _),
        ExitStack() as spreading,
    ):
        roots = _roots(layout, variant, names)
        refuse_other_definitions(
            _subjects(layout, roots, variant), Project(request.definitions, request.sites)
        )
        if request.before_push is not None:
            request.before_push(_subjects(layout, roots, variant))
        if request.spread:
            layout, roots = spreading.enter_context(_spread(layout, roots, events))
        items, plain = [], request.tags or (variant.name,)
        for name, root in roots.items():
            tags = plain
            if request.per_architecture:
                tags = tuple(f"{tag}-{_architecture(name, layout, root)}" for tag in tags)
            items.append(Item(name, root, target.below(name).path, tuple(map(check_tag, tags))))
            if request.attest is not None:
                # By the index's names, too: a policy asks for them when it looks at the image for a machine.
                pulled_by = tuple(dict.fromkeys((*tags, *plain)))
                naming = replace(request.attest, repository=target.repository, tags=pulled_by)
                attest_pushed(_subjects(layout, {name: root}, variant), root, naming, events)
        registry = _registry(target.host, request, events)
        begun = time.monotonic()
        results = push(
            layout,
            registry,
            items,
            events,
            jobs=request.jobs,
            referrers=request.referrers,
            # Where `build --cache` put layers when its repository is this one.
            mount_from=[target.path],
        )
    ended = time.monotonic()
    return Published(
        tuple(
            PublishedImage(
                name=result.item.name,
                repository=f"{target.host}/{result.item.repository}",
                tags=result.item.tags,
                digest=result.item.root.digest,
                size=result.size,
                platforms=result.platforms,
                changed=bool(result.moved),
                sent=result.sent,
                mounted=result.mounted,
                present=result.present,
                referrers=result.referrers,
            )
            for result in results
        ),
        ended - started,
        ended - begun,
    )


def publish_indexes(request: PublishRequest, architectures: Sequence[str], events: Events) -> Published:
    """Join what `publish` with `per_architecture` pushed: TAG-amd64 and TAG-arm64 become TAG.

    Without `architectures` those are joined that are there. Raises CellblockError naming what is not.
    """
    started = time.monotonic()
    target = _target(request)
    variant, names = _chosen(request)
    registry = _registry(target.host, request, events)
    published = []
    for name in names:
        begun = time.monotonic()
        events.emit(SubjectState(name, "running"))
        repository = registry.repository(target.below(name).path)
        for tag in request.tags or (variant.name,):
            members = {each: check_tag(f"{tag}-{each}") for each in architectures or ARCHITECTURES}

            def sign(
                index: Descriptor, path: str = repository.path, name: str = name, tag: str = tag
            ) -> None:
                if request.attest is not None and request.attest.signer is not None:
                    (reference,) = pulled_as(target.repository, name, [tag])
                    sign_joined(registry, path, index, request.attest.signer, reference, events)

            joined = join(repository, check_tag(tag), members, all_of_them=bool(architectures), before=sign)
            platforms = tuple(each.platform for each in joined.manifests if each.platform)
            published.append(
                PublishedImage(
                    name,
                    str(repository),
                    (tag,),
                    joined.descriptor.digest,
                    joined.size,
                    platforms,
                    joined.changed,
                )
            )
            text = f"{tag}: {', '.join(platform.architecture for platform in platforms)}"
            events.emit(SubjectState(name, "done", text, time.monotonic() - begun))
    seconds = time.monotonic() - started
    return Published(tuple(published), seconds, seconds)


def write_digests(published: Published, path: Path) -> None:
    """Write `published.digests()` to `path`, by rename: a reader sees the old or the new file, whole.

    Raises OSError.
    """
    durable.replace(path, json.dumps(published.digests(), indent=2) + "\n")


# -- what is asked for ---------------------------------------------------------------------------------


def _target(request: PublishRequest) -> Reference:
    target = Reference.parse(request.repository)
    if target.tag or target.digest:
        raise UsageError(
            f"'{request.repository}' names an image; the images' names come below a repository",
            hint="give HOST[:PORT]/PATH, and the tag with --tag",
        )
    return target


def _chosen(request: PublishRequest) -> tuple[Variant, list[str]]:
    """The variant and names of images."""
    project = Project(request.definitions, request.sites)
    variant, declared = project.variant(request.variant), project.images
    check_known(request.images, declared)
    return variant, list(dict.fromkeys(request.images)) or [
        name for name in default_images(declared) if _runs(declared[name])
    ]


def _runs(image: Image) -> bool:
    """Whether something is started from the image: the others are parts that were copied or built upon."""
    return bool(image.fields.entrypoint or image.fields.command)


# -- where it comes from -------------------------------------------------------------------------------


def _roots(layout: Layout, variant: Variant, names: Sequence[str]) -> dict[str, Descriptor]:
    """What each image's name means in the layout: an image, or an index of several platforms."""
    known = layout.references()
    stored = {name: name_in(set(known), name, variant) for name in names}
    return {name: known[each] for name, each in stored.items() if each is not None}


@contextmanager
def _spread(
    layout: Layout, roots: Mapping[str, Descriptor], events: Events
) -> Iterator[tuple[Layout, dict[str, Descriptor]]]:
    """A layout of its own with the images spread over layers by package; removed afterwards."""
    from cellblock.release.spreading import spread

    with tempfile.TemporaryDirectory(prefix="cellblock-spread-", dir="/var/tmp") as folder:
        target, found = Layout(Path(folder, "layout")), {}
        for name, root in roots.items():
            images = list(_images(layout, root))
            if len(images) != 1:
                raise UsageError(
                    f"{name} is an index of {len(images)} platforms",
                    hint="push each with --per-arch --spread",
                )
            with events.step(name, "spread over layers"), tempfile.TemporaryDirectory(dir=folder) as scratch:
                found[name] = spread(images[0], layout, target, Path(scratch), name)
        yield target, found


def _subjects(layout: Layout, roots: Mapping[str, Descriptor], variant: Variant) -> list[Subject]:
    return [
        Subject(name, variant.name, reference(name, variant), layout, image)
        for name, root in roots.items()
        for image in _images(layout, root)
    ]


def _images(layout: Layout, root: Descriptor) -> Iterator[StoredImage]:
    if root.media_type in (INDEX, DOCKER_LIST):
        for child in Index.of_bytes(layout.read(root.digest)).manifests:
            yield from _images(layout, child)
    else:
        yield layout.stored(root)


def _architecture(name: str, layout: Layout, root: Descriptor) -> str:
    images = list(_images(layout, root))
    if len(images) != 1:
        raise UsageError(
            f"{name} is an index of {len(images)} platforms already", hint="push it without --per-arch"
        )
    return images[0].configuration.platform.architecture


def _registry(host: str, request: PublishRequest, events: Events) -> Registry:
    return Registry(host, request.connection, notice=events.warning, stopped=threading.Event())
