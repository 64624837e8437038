# SPDX-License-Identifier: Apache-2.0
"""Joins the images of several architectures, which a registry has already, into one image index.

`build.py push --index` calls it through release/publish.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from cellblock.errors import CellblockError
from cellblock.oci.model import (
    DOCKER_LIST,
    INDEX,
    Configuration,
    Descriptor,
    Index,
    Manifest,
    digest_of_bytes,
)
from cellblock.oci.registry.client import RemoteManifest, Repository
from cellblock.oci.registry.download import blob_chunks
from cellblock.oci.registry.errors import NotInRegistry


@dataclass(frozen=True)
class Joined:
    """An index in a registry. `size` is what somebody who has nothing pulls for all platforms, in bytes."""

    descriptor: Descriptor
    manifests: tuple[Descriptor, ...]
    size: int
    changed: bool
    """Whether the tag named something else, or nothing, before."""


def join(
    repository: Repository,
    tag: str,
    members: Mapping[str, str],
    *,
    all_of_them: bool,
    before: Callable[[Descriptor], None] = lambda _: None,
) -> Joined:
    """Let `tag` name an index of `members`: tags by architecture (amd64, arm64).

    `before` sees the index before the tag names it. The same members give the same digest. Without
    `all_of_them` those that are not there are left out. Raises CellblockError when one is missing, is
    for another architecture than it is said to be, or none is there.
    """
    found: list[Descriptor] = []
    size = 0
    for architecture, name in sorted(members.items()):
        try:
            root = repository.manifest(name)
        except NotInRegistry as error:
            if not all_of_them:
                continue
            raise CellblockError(
                f"{repository} has no {name}: the image for {architecture} was not pushed yet",
                hint=f"run `build.py push ... --per-arch` on a machine that built it for {architecture}",
            ) from error
        for manifest in _images(repository, root):
            image = Manifest.of_bytes(manifest.data)
            config = b"".join(blob_chunks(repository, image.config))
            platform = Configuration.of_bytes(config).platform
            if platform.architecture != architecture:
                raise CellblockError(
                    f"{repository}:{name} is for {platform.architecture}, and its tag says {architecture}",
                    hint="push the right image to that tag; an index would give it to the wrong machines",
                )
            found.append(replace(manifest.descriptor, annotations={}, platform=platform))
            blobs = {blob.digest: blob.size for blob in (image.config, *image.layers)}
            size += sum(blobs.values()) + len(manifest.data)
    if not found:
        raise CellblockError(
            f"{repository} has none of {', '.join(sorted(members.values()))}: there is nothing to join",
            hint="push the images of each architecture first: `build.py push ... --per-arch`",
        )
    data = Index(tuple(found)).to_bytes()
    earlier = repository.descriptor(tag)
    descriptor = Descriptor(INDEX, digest_of_bytes(data), len(data))
    changed = earlier is None or earlier.digest != descriptor.digest
    before(descriptor)
    if changed:
        repository.put_manifest(data, INDEX, tag)
    return Joined(descriptor, tuple(found), size + len(data), changed)


def _images(repository: Repository, root: RemoteManifest) -> list[RemoteManifest]:
    """The images that a tag names: one, or those of its index."""
    if root.descriptor.media_type not in (INDEX, DOCKER_LIST):
        return [root]
    return [repository.manifest(each.digest) for each in Index.of_bytes(root.data).manifests]
