"""The layers of a variant as a graph: each with what it stands on, what makes it, and its cache key.

A layer's key is the SHA-256 over all that shapes its bytes: what is below it, the debs by SHA-256, files with
modes, shell lines, the code that builds and the versions of the tools that write. Equal keys, equal layers:
a key is built once on a machine, whichever images, variants or processes ask for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cellblock.build.extra_archives import of_images
from cellblock.build.layers import Closure, PackageLayer, plan_package_layers
from cellblock.build.plan import PlannedImage
from cellblock.errors import UsageError
from cellblock.key import Key, digest_of
from cellblock.lock.model import Lock, LockedPackage
from cellblock.store.record import LayerKind


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
    image: PlannedImage | None = None
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
    planned: Mapping[str, PlannedImage],
    lock: Lock,
    tools: ToolVersions,
    epoch: int,
    compression: str,
    *,
    cuda_packages: frozenset[str] = frozenset(),
) -> dict[str, Node]:
    """Image -> its topmost layer. `planned` holds all images of the variant, in build order.

    Raises UsageError when the lock was made for other definitions.
    """
    _compare(planned, lock)
    common = {**tools.inputs(), "SOURCE_DATE_EPOCH": str(epoch), "compression": compression}
    sharing = plan_package_layers(_closure(planned, lock, cuda_packages))
    tops: dict[str, Node] = {}
    shared: dict[str, Node] = {}
    for name, image in planned.items():
        fields = image.image.fields
        top = tops[fields.parent] if fields.parent else None
        for layer in sharing.get(name, ()):
            top = _package_node(layer, top, image, lock, common, planned)
            # What several images share is one node, whoever comes first.
            top = shared.setdefault(top.key.digest, top)
        if fields.manuals and top:
            top = _manuals_node(top, name, image, common)
        has_files = bool(image.inputs_of_files)
        if fields.build or has_files:
            copied = {artifacts.image for artifacts in fields.artifacts}
            needs = {
                need: tops[need] for need in image.image.needs() if need != fields.parent or need in copied
            }
            per_machine = _per_machine((name,), planned)
            inputs = {
                **common,
                **image.inputs_of_files,
                "paths that each machine makes": digest_of(list(per_machine)),
                "the code that builds": image.code,
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
    image: PlannedImage,
    lock: Lock,
    common: Mapping[str, str],
    planned: Mapping[str, PlannedImage],
) -> Node:
    packages = tuple(lock.packages[name] for name in layer.packages)
    asked = frozenset.intersection(*(_manual(name, planned, lock) for name in layer.images))
    below = frozenset(
        package.name for node in (parent.chain() if parent else ()) for package in node.packages
    )
    marked = asked & (below | frozenset(layer.packages))
    per_machine = _per_machine(layer.images, planned)
    # What several images share is made without the settings of one.
    own = image if layer.kind != "shared" and (parent is None or image.image.fields.users) else None
    inputs = {
        **common,
        **{f"package {package.name}": f"{package.version} {package.sha256}" for package in packages},
        "the code that builds": image.code,
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


def _manuals_node(parent: Node, name: str, image: PlannedImage, common: Mapping[str, str]) -> Node:
    """The layer of manual pages of all packages in `parent` whose pages no layer has yet."""
    packages: list[LockedPackage] = []
    for node in parent.chain():
        if node.manuals:
            packages = []
        packages += node.packages
    inputs = {**common, "the code that builds": image.code, "the layer below": parent.key.digest}
    inputs["what it adds"] = "manual pages"
    return Node(
        "manuals",
        f"manual pages of {name}",
        Key(inputs),
        parent,
        (name,),
        manuals=tuple(sorted(packages, key=lambda each: each.name)),
    )


def _manual(name: str, planned: Mapping[str, PlannedImage], lock: Lock) -> frozenset[str]:
    """What an image and those it is made from ask for."""
    own = frozenset(lock.images[name].requested) if name in lock.images else frozenset[str]()
    parent = planned[name].image.fields.parent
    return own | (_manual(parent, planned, lock) if parent else frozenset())


def _per_machine(names: Iterable[str], planned: Mapping[str, PlannedImage]) -> tuple[str, ...]:
    """Of images and those they are made from: a package of either may make such a file."""
    patterns: set[str] = set()
    for name in names:
        each: str | None = name
        while each:
            patterns.update(planned[each].image.fields.per_machine)
            each = planned[each].image.fields.parent
    return tuple(sorted(patterns))


def _closure(planned: Mapping[str, PlannedImage], lock: Lock, cuda: frozenset[str]) -> Closure:
    images = [name for name in planned if name in lock.images]
    return Closure(
        parents={name: lock.images[name].parent for name in images},
        holds={name: frozenset(lock.images[name].packages) for name in images},
        depends={package.name: package.depends for package in lock.packages.values()},
        size={package.name: package.size for package in lock.packages.values()},
        roots={name: _manual(name, planned, lock) - cuda for name in images},
        cuda=cuda,
    )


def _compare(planned: Mapping[str, PlannedImage], lock: Lock) -> None:
    """Raise UsageError when `lock` is of other definitions."""
    for name, image in planned.items():
        if image.image.fields.build:
            continue
        locked = lock.images.get(name)
        if locked is None or locked.parent != image.image.fields.parent:
            raise UsageError(
                f"the lock of {lock.variant} does not know image {name} as it is declared",
                hint=f"renew it with: python3 build.py lock {lock.variant}",
            )
        different = set(image.packages) ^ set(locked.requested)
        if different:
            raise UsageError(
                f"image {name} asks for other packages than the lock of {lock.variant}: "
                f"{', '.join(sorted(different))}",
                hint=f"renew it with: python3 build.py lock {lock.variant}",
            )
