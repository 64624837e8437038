# SPDX-License-Identifier: Apache-2.0
"""Decides which packages form a layer, over all images of a variant, so that what images share is one blob.

Images form a tree by `from`. Where several images of one parent hold the same packages, these become a layer
between the parent and the images: the largest saving first, while it is worth a layer and the number of
layers stays within a limit. Packages that only a CUDA variant asks for are the topmost layer: they are
larger than all else and change most often.

A group of packages is closed under dependencies: what a package of it needs is in it or below. Otherwise dpkg
could not configure it there. docs/decisions/build-layers-over-roles.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

BUDGET = 12
"""Package layers of an image at most: overlayfs and registries take over a hundred, each a round trip."""

WORTH = 256 << 10
"""Bytes of debs from which on sharing is worth a layer: what a round trip to a registry costs."""

PackageLayerKind = Literal["base", "shared", "packages", "cuda"]


@dataclass(frozen=True)
class PackageLayer:
    """Packages that are installed together, sorted by name, and the images that hold this layer."""

    kind: PackageLayerKind
    packages: tuple[str, ...]
    images: tuple[str, ...]

    @property
    def title(self) -> str:
        """For a person."""
        if self.kind == "shared":
            return f"packages shared by {', '.join(self.images)}"
        if self.kind == "cuda":
            return f"CUDA packages of {', '.join(self.images)}"
        return f"packages of {', '.join(self.images)}"


@dataclass(frozen=True)
class Closure:
    """What planning needs to know of a variant.

    `parents`: image -> image it is made from; `holds`: image -> all its packages; `depends`: package ->
    the packages that its dependencies lead to, alternatives as "a | b"; `size`: package -> bytes to pull;
    `roots`: image -> packages asked for that are not CUDA's, its own and its parents'; `cuda`: those asked
    for as CUDA's.
    """

    parents: Mapping[str, str | None]
    holds: Mapping[str, Set[str]]
    depends: Mapping[str, Iterable[str]]
    size: Mapping[str, int]
    roots: Mapping[str, Set[str]]
    cuda: Set[str] = frozenset()


def plan_package_layers(closure: Closure, budget: int = BUDGET) -> dict[str, tuple[PackageLayer, ...]]:
    """Image -> the package layers that it adds to its parent's, the lowest first.

    No image gets more than `budget` package layers, its parents' included, unless its parents alone
    have more.
    """
    worth = WORTH
    while True:
        planned = _plan(closure, worth)
        most = max((len(_all_layers(closure, planned, image)) for image in closure.parents), default=0)
        needed = max((_least(closure, image) for image in closure.parents), default=0)
        if most <= max(budget, needed):
            return planned
        worth *= 2


def _plan(closure: Closure, worth: int) -> dict[str, tuple[PackageLayer, ...]]:
    planned: dict[str, tuple[PackageLayer, ...]] = dict.fromkeys(closure.parents, ())
    parents: dict[str | None, list[str]] = {}
    for image, parent in closure.parents.items():
        parents.setdefault(parent, []).append(image)
    for parent, children in parents.items():
        below = closure.holds[parent] if parent else frozenset[str]()
        added = {child: frozenset(closure.holds[child] - below) for child in sorted(children)}
        if parent is None:
            # A root is bootstrapped whole: there is nothing below that a layer could stand on.
            for child, packages in added.items():
                if packages:
                    planned[child] = (PackageLayer("base", tuple(sorted(packages)), (child,)),)
        else:
            for child, layers in _share(closure, added, below, worth).items():
                planned[child] = layers
    return planned


def _share(
    closure: Closure, added: Mapping[str, frozenset[str]], below: Set[str], worth: int
) -> dict[str, tuple[PackageLayer, ...]]:
    """Layers of images that stand on `below` and add `added`."""
    group, shared = _best_group(closure, added, below, worth)
    if not group:
        return {image: _own(closure, image, packages, below) for image, packages in added.items()}
    layer = PackageLayer("shared", tuple(sorted(shared)), group)
    within = {image: added[image] - shared for image in group}
    layers = {image: (layer, *own) for image, own in _share(closure, within, below | shared, worth).items()}
    rest = {image: packages for image, packages in added.items() if image not in group}
    return {**layers, **(_share(closure, rest, below, worth) if rest else {})}


def _best_group(
    closure: Closure, added: Mapping[str, frozenset[str]], below: Set[str], worth: int
) -> tuple[tuple[str, ...], frozenset[str]]:
    """The images, and the packages they share, that save the most bytes; none when nothing is worth it."""
    holders: dict[str, set[str]] = {}
    for image, packages in added.items():
        for package in packages:
            holders.setdefault(package, set()).add(image)
    candidates = sorted({tuple(sorted(each)) for each in holders.values() if len(each) > 1})
    best: tuple[int, tuple[str, ...], frozenset[str]] = (0, (), frozenset())
    for group in candidates:
        common = frozenset.intersection(*(added[image] for image in group))
        common = _closed(closure, common - closure.cuda, below)
        weight = sum(closure.size[package] for package in common)
        saved = weight * (len(group) - 1)
        if weight >= worth and saved > best[0]:
            best = (saved, group, common)
    return best[1], best[2]


def _closed(closure: Closure, packages: frozenset[str], below: Set[str]) -> frozenset[str]:
    """`packages` without those that need something that is neither among them nor `below`."""
    while True:
        kept = frozenset(
            package
            for package in packages
            if all(
                any(each in packages or each in below for each in need.split(" | "))
                for need in closure.depends.get(package, ())
            )
        )
        if kept == packages:
            return kept
        packages = kept


def _own(closure: Closure, image: str, packages: frozenset[str], below: Set[str]) -> tuple[PackageLayer, ...]:
    """What an image has for itself, CUDA apart."""
    if not packages:
        return ()
    plain = packages
    if closure.cuda & packages:
        plain = _closed(closure, packages & _reached(closure, closure.roots[image]), below)
    layers = []
    if plain:
        layers.append(PackageLayer("packages", tuple(sorted(plain)), (image,)))
    if packages - plain:
        layers.append(PackageLayer("cuda", tuple(sorted(packages - plain)), (image,)))
    return tuple(layers)


def _reached(closure: Closure, roots: Iterable[str]) -> frozenset[str]:
    """`roots` and all that they depend on."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        package = waiting.pop()
        if package not in found:
            found.add(package)
            waiting.extend(each for need in closure.depends.get(package, ()) for each in need.split(" | "))
    return frozenset(found)


def _all_layers(
    closure: Closure, planned: Mapping[str, Sequence[PackageLayer]], image: str
) -> list[PackageLayer]:
    parent = closure.parents[image]
    below = _all_layers(closure, planned, parent) if parent else []
    return [*below, *planned[image]]


def _least(closure: Closure, image: str) -> int:
    """Package layers that `image` has when nothing is shared."""
    parent = closure.parents[image]
    below = closure.holds[parent] if parent else frozenset[str]()
    own = 1 if closure.holds[image] - below else 0
    own += 1 if own and closure.cuda & (closure.holds[image] - below) else 0
    return own + (_least(closure, parent) if parent else 0)
