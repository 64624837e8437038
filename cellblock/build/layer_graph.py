# SPDX-License-Identifier: Apache-2.0
"""Makes the graph of a variant's layers: each with its parent, the step that makes it, and its cache key.

A layer's key is the SHA-256 over all that shapes its bytes: what is below it, the debs by SHA-256, files with
modes, shell lines, the code that builds and the versions of the tools that write. Equal keys, equal layers:
a key is built once on a machine, whichever images, variants or processes ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cellblock
from cellblock.build.extra_archives import of_images
from cellblock.build.package_layers import Closure, PackageLayer, plan_package_layers
from cellblock.build.rendering import RenderedImage
from cellblock.cache_key import Key, digest_of, digest_of_tree, digests_of_files
from cellblock.errors import UsageError
from cellblock.lock.model import Lock, LockedPackage
from cellblock.store.record import LayerKind

# The code whose change can change what an image holds.
_CODE = ("engine", "build", "oci", "packages", "debian")


@dataclass(frozen=True)
class Node:
    """One layer to be. `image` is the definition that it comes from, for `files` and `output`.

    `needs` are layers whose files are copied into this one or that it is compiled in, with their own
    parents: image -> its topmost layer.
    """

    kind: LayerKind
    title: str
    key: Key
    parent: Node | None
    images: tuple[str, ...]
    image: RenderedImage | None = None
    packages: tuple[LockedPackage, ...] = ()
    manuals: tuple[LockedPackage, ...] = ()
    """Packages of the layers below whose manual pages this layer adds."""
    manual: frozenset[str] = frozenset()
    """Of all packages up to here, those that somebody asked for: apt's autoremove leaves them."""
    needs: Mapping[str, Node] | None = None
    per_machine: tuple[str, ...] = ()
    """Patterns of files that are in no layer of its images."""

    @property
    def id(self) -> str:
        """Name of its folder and its record."""
        return self.key.digest[:32]

    @property
    def subject(self) -> str:
        """How events call it: an image's name, or that of what images share."""
        if self.kind == "shared":
            return f"shared:{'+'.join(self.images)}"
        return self.images[0]

    def chain(self) -> tuple[Node, ...]:
        """The layers that it stands on and itself, the lowest first."""
        return (*(self.parent.chain() if self.parent else ()), self)

    def waits_for(self) -> tuple[Node, ...]:
        """Layers that must be there before this one is made."""
        needed = (self.parent,) if self.parent else ()
        return (*needed, *(self.needs or {}).values())


@dataclass(frozen=True)
class ToolVersions:
    """Versions of the programs whose version may shape bytes, by name."""

    versions: Mapping[str, str]

    def inputs(self) -> dict[str, str]:
        """As inputs of a key."""
        return {f"tool {name}": version for name, version in self.versions.items()}


def plan_nodes(
    rendered: Mapping[str, RenderedImage],
    lock: Lock,
    tools: ToolVersions,
    epoch: int,
    compression: str,
    *,
    cuda_packages: frozenset[str] = frozenset(),
    relock: str = "python3 build.py lock",
) -> dict[str, Node]:
    """Image -> its topmost layer. `rendered` holds all images of the variant, in build order.

    Raises UsageError when the lock was made for other definitions; `relock` is the command that renews it.
    """
    _compare(rendered, lock, relock)
    common = {**tools.inputs(), "SOURCE_DATE_EPOCH": str(epoch), "compression": compression}
    sharing = plan_package_layers(_closure(rendered, lock, cuda_packages))
    tops: dict[str, Node] = {}
    shared: dict[str, Node] = {}
    for name, image in rendered.items():
        fields = image.image.fields
        top = tops[fields.parent] if fields.parent else None
        for layer in sharing.get(name, ()):
            top = _package_node(layer, top, image, lock, common, rendered)
            # What several images share is one node, whoever comes first.
            top = shared.setdefault(top.key.digest, top)
        if fields.manuals and top:
            top = _manuals_node(top, name, image, common)
        own = _inputs_of_files(image)
        if fields.build or own:
            copied = {artifacts.image for artifacts in fields.artifacts}
            needs = {
                need: tops[need] for need in image.image.needs() if need != fields.parent or need in copied
            }
            per_machine = _per_machine((name,), rendered)
            inputs = {
                **common,
                **own,
                "paths that each machine makes": digest_of(list(per_machine)),
                "the code that builds": code_digest(),
                **({"the layer below": top.key.digest} if top else {}),
                **{f"image {need}": node.key.digest for need, node in needs.items()},
            }
            kind: LayerKind = "output" if fields.build else "files"
            title = f"what is compiled for {name}" if fields.build else f"files and settings of {name}"
            parent = None if fields.build else top
            top = Node(kind, title, Key(inputs), parent, (name,), image, needs=needs, per_machine=per_machine)
        if top is None:
            raise UsageError(
                f"image {name} would be empty: it has neither packages nor files",
                hint="see docs/definitions.md",
            )
        tops[name] = top
    return tops


def _package_node(
    layer: PackageLayer,
    parent: Node | None,
    image: RenderedImage,
    lock: Lock,
    common: Mapping[str, str],
    rendered: Mapping[str, RenderedImage],
) -> Node:
    packages = tuple(lock.packages[name] for name in layer.packages)
    asked = frozenset.intersection(*(_manual(name, rendered, lock) for name in layer.images))
    below = frozenset(
        package.name for node in (parent.chain() if parent else ()) for package in node.packages
    )
    marked = asked & (below | frozenset(layer.packages))
    per_machine = _per_machine(layer.images, rendered)
    # What several images share is made without the settings of one.
    own = image if layer.kind != "shared" and (parent is None or image.image.fields.users) else None
    inputs = {
        **common,
        **{f"package {package.name}": f"{package.version} {package.sha256}" for package in packages},
        "the code that builds": code_digest(),
        "paths that each machine makes": digest_of(list(per_machine)),
        "packages asked for": digest_of(sorted(marked)),
        "distribution": digest_of(image.variant.distribution.model_dump()),
    }
    if own:
        inputs["users"] = digest_of([user.model_dump() for user in image.image.fields.users])
    if parent is None:
        inputs["archives"] = digest_of([archive.line for archive in of_images(lock.archives)])
    else:
        inputs["the layer below"] = parent.key.digest
    return Node(
        layer.kind,
        layer.title,
        Key(inputs),
        parent,
        layer.images,
        own,
        packages=packages,
        manual=marked,
        per_machine=per_machine,
    )


def _manuals_node(parent: Node, name: str, image: RenderedImage, common: Mapping[str, str]) -> Node:
    """The layer of manual pages of all packages in `parent` whose pages no layer has yet."""
    packages: list[LockedPackage] = []
    for node in parent.chain():
        if node.manuals:
            packages = []
        packages += node.packages
    inputs = {**common, "the code that builds": code_digest(), "the layer below": parent.key.digest}
    inputs["what it adds"] = "manual pages"
    return Node(
        "manuals",
        f"manual pages of {name}",
        Key(inputs),
        parent,
        (name,),
        manuals=tuple(sorted(packages, key=lambda each: each.name)),
    )


@cache
def code_digest() -> str:
    """Digest of the code whose change can change what an image holds. It is read once a process."""
    package = Path(cellblock.__file__).parent
    return digest_of([digest_of_tree(package / folder, (".py", ".sh")) for folder in _CODE])


def _inputs_of_files(rendered: RenderedImage) -> dict[str, str]:
    """Digests by name of what is laid over the packages and run there; none when there are only packages."""
    image, fields = rendered.image, rendered.image.fields
    folder = f"{image.key_name}/files"
    inputs = digests_of_files(image.files, folder, ignored=())
    for name, text in rendered.files.items():
        # What it renders to, and not what it could: the same text in two variants is one layer.
        kind = inputs[f"{folder}/{name}"].split(" ")[0]
        inputs[f"{folder}/{name}"] = f"{kind} rendered {digest_of(text)}"
    for source in fields.build.sources if fields.build else ():
        inputs.update(digests_of_files(image.source_folder(source), source))
    said: dict[str, Any] = {
        "run": rendered.run,
        "artifacts": [list(pair) for copy in rendered.copies for pair in copy.files],
        "build": fields.build.model_dump() if fields.build else None,
        # A root's users are made where it is bootstrapped.
        "users": [user.model_dump() for user in fields.users] if rendered.parent else [],
    }
    for key, value in said.items():
        if value:
            inputs[f"{image.key_name}/image.yaml: {key}"] = digest_of(value)
    return inputs


def _manual(name: str, rendered: Mapping[str, RenderedImage], lock: Lock) -> frozenset[str]:
    """What an image and those it is made from ask for."""
    own = frozenset(lock.images[name].requested) if name in lock.images else frozenset[str]()
    parent = rendered[name].parent
    return own | (_manual(parent, rendered, lock) if parent else frozenset())


def _per_machine(names: Iterable[str], rendered: Mapping[str, RenderedImage]) -> tuple[str, ...]:
    """Of several images: a package of either may make such a file."""
    return tuple(sorted({pattern for name in names for pattern in rendered[name].per_machine}))


def _closure(rendered: Mapping[str, RenderedImage], lock: Lock, cuda: frozenset[str]) -> Closure:
    images = [name for name in rendered if name in lock.images]
    return Closure(
        parents={name: lock.images[name].parent for name in images},
        holds={name: frozenset(lock.images[name].packages) for name in images},
        depends={package.name: package.depends for package in lock.packages.values()},
        size={package.name: package.size for package in lock.packages.values()},
        roots={name: _manual(name, rendered, lock) - cuda for name in images},
        cuda=cuda,
    )


def _compare(rendered: Mapping[str, RenderedImage], lock: Lock, relock: str) -> None:
    """Raise UsageError when `lock` is of other definitions."""
    for name, image in rendered.items():
        if image.image.fields.build:
            continue
        locked = lock.images.get(name)
        if locked is None or locked.parent != image.parent:
            raise UsageError(
                f"the lock of {lock.variant} does not know image {name} as it is declared",
                hint=f"renew it with: {relock}",
            )
        different = set(image.packages) ^ set(locked.requested)
        if different:
            raise UsageError(
                f"image {name} asks for other packages than the lock of {lock.variant}: "
                f"{', '.join(sorted(different))}",
                hint=f"renew it with: {relock}",
            )
