# SPDX-License-Identifier: Apache-2.0
"""Finds with apt all packages that each image of a variant needs, without any root filesystem.

apt_root.py runs apt; the result becomes the lock.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

from cellblock.cache_key import digest_of
from cellblock.errors import CellblockError, DefinitionError
from cellblock.events import Events, SubjectState
from cellblock.files.flock import locked
from cellblock.lock.apt_root import AptRoot, Choice, Index
from cellblock.lock.archives import PackageArchive
from cellblock.lock.model import Lock, LockedImage, LockedPackage
from cellblock.lock.reachable_packages import Stanza, Universe, dependencies, naming, providers_of
from cellblock.process import ProgramFailed
from cellblock.variants import Variant

SUBJECT = "lock"
"""Under this name resolving appears among the events."""

# Fields of a Release file by which apt weighs an archive against another (apt_preferences(5)).
_WEIGHTS = ("Origin", "Label", "Suite", "Codename", "Version", "NotAutomatic", "ButAutomaticUpgrades")


@dataclass(frozen=True)
class Request:
    """What an image asks for: packages on top of what its parent (None: an empty root) holds.

    `where` is the place of the definition, for errors.
    """

    parent: str | None
    packages: tuple[str, ...]
    where: str = "image.yaml"


def resolve(
    variant: Variant,
    archives: Sequence[PackageArchive],
    requests: Mapping[str, Request],
    cache: Path,
    events: Events,
    *,
    snapshot: str | None = None,
    preferences: str = "",
    tarballs: Mapping[str, str] | None = None,
) -> Lock:
    """The lock of `variant`: fetches what changed of the package lists below `cache`, then asks apt.

    An image without a parent gets what `mmdebstrap --variant=apt` installs: the essential packages, apt
    and what it asks for; another gets what `apt-get install` adds to its parent's packages. `snapshot`
    says that `archives` are of a date in the past, so their indexes may be past theirs; `preferences`
    (apt_preferences(5)) weigh versions. A second process waits. Raises CellblockError when lists cannot
    be fetched, DefinitionError when a package does not exist or cannot be installed.
    """
    distribution = variant.distribution
    lines = [archive.line for archive in archives]
    folder = cache / "lists" / f"{variant.name}-{variant.arch.debian}-{digest_of(lines)[:8]}"

    def waiting() -> None:
        events.info(f"another process works on the package lists of {variant.name}; waiting for it")

    with locked(folder / "lock", waiting=waiting):
        started = time.monotonic()
        root = AptRoot(
            folder,
            distribution.id,
            variant.arch.debian,
            archives,
            check_valid_until=distribution.check_valid_until and snapshot is None,
        )
        with events.step(SUBJECT, "fetch package lists"):
            root.update()
        with events.step(SUBJECT, "resolve"):
            indexes = root.indexes()
            universe = Universe([root.text(index) for index in indexes])
            asked = [package for request in requests.values() for package in request.packages]
            # apt would take a list of the same second as the last one for unchanged.
            shutil.rmtree(folder / "reachable", ignore_errors=True)
            small = _small_archives(folder / "reachable", indexes, universe.reachable(asked))
            apt = AptRoot(
                folder / "reachable" / "apt",
                distribution.id,
                variant.arch.debian,
                small,
                preferences=preferences,
            )
            apt.update()
            closures = _closures(apt, universe, requests)
        events.emit(SubjectState(SUBJECT, "done", seconds=time.monotonic() - started))
    packages = _packages(closures, universe, indexes, archives)
    return Lock(
        variant=variant.name,
        architecture=variant.arch.debian,
        date=_newest(index.release.get("date", "") for index in indexes),
        archives=tuple(archives),
        images={
            name: LockedImage(
                name,
                request.parent,
                tuple(sorted(request.packages)),
                tuple(sorted(choice.name for choice in closures[name])),
            )
            for name, request in requests.items()
        },
        packages={package.name: package for package in packages},
        snapshot=snapshot,
        tarballs=dict(tarballs or {}),
    )


def _small_archives(
    folder: Path, indexes: Sequence[Index], stanzas: Sequence[Stanza]
) -> list[PackageArchive]:
    """A flat archive below `folder` for each index, holding only `stanzas`, that apt weighs as it."""
    texts: list[list[bytes]] = [[] for _ in indexes]
    if texts:
        texts[0].append(naming(stanzas))
    for stanza in stanzas:
        texts[stanza.index].append(stanza.text)
    archives = []
    for number, index in enumerate(indexes):
        here = folder / str(number)
        here.mkdir(parents=True, exist_ok=True)
        (here / "Packages").write_bytes(b"".join(text + b"\n\n" for text in texts[number]))
        fields = [
            f"{name}: {index.release[name.lower()]}" for name in _WEIGHTS if name.lower() in index.release
        ]
        (here / "Release").write_text("\n".join(fields) + "\n", encoding="utf-8")
        archives.append(PackageArchive((f"file:{here}",), "./", (), ("trusted=yes",)))
    return archives


def _closures(
    apt: AptRoot, universe: Universe, requests: Mapping[str, Request]
) -> dict[str, tuple[Choice, ...]]:
    """What each image holds, parents' packages included."""
    closures: dict[str, tuple[Choice, ...]] = {}

    def close(name: str) -> tuple[Choice, ...]:
        request = requests[name]
        held = closures[request.parent] if request.parent else ()
        if request.parent is None:
            held = tuple(_ask(apt, universe, name, request, held, "dist-upgrade"))
        if request.packages:
            held += tuple(_ask(apt, universe, name, request, held, "install", *request.packages))
        return held

    # Images of one parent do not ask for each other's packages.
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for names in _generations(requests):
            closures.update(zip(names, pool.map(close, names), strict=True))
    return {name: closures[name] for name in requests}


def _generations(requests: Mapping[str, Request]) -> Iterator[list[str]]:
    """The images without a parent, then those on them, and so on."""
    done: set[str | None] = {None}
    while len(done) <= len(requests):
        names = [name for name, one in requests.items() if name not in done and one.parent in done]
        if not names:
            raise ValueError(f"images have parents that nobody asks for: {set(requests) - done}")
        yield names
        done.update(names)


def _ask(
    apt: AptRoot, universe: Universe, image: str, request: Request, held: tuple[Choice, ...], *command: str
) -> list[Choice]:
    stanzas = [universe.versions(one.name, one.version, one.architecture)[0].text for one in held]
    try:
        found = apt.would_install(stanzas, *command)
    except ProgramFailed as error:
        said = "\n".join(f"  | {line}" for line in error.finished.tail)
        raise DefinitionError(
            f"{request.where}: image {image}: apt cannot install what it asks for\n{said}",
            hint=f"correct `packages` in {request.where}, or name another archive with --mirror",
        ) from error
    again = {one.name for one in held} & {one.name for one in found}
    if again:
        raise DefinitionError(
            f"{request.where}: image {image}: apt would replace {', '.join(sorted(again))}, which "
            f"{request.parent} holds in another version",
            hint="ask for the same version in both, or for none",
        )
    return found


def _packages(
    closures: Mapping[str, tuple[Choice, ...]],
    universe: Universe,
    indexes: Sequence[Index],
    archives: Sequence[PackageArchive],
) -> list[LockedPackage]:
    holders: dict[Choice, list[str]] = {}
    for image, choices in closures.items():
        for choice in choices:
            holders.setdefault(choice, []).append(image)
    versions: dict[str, Choice] = {}
    for choice in holders:
        other = versions.setdefault(choice.name, choice)
        if other != choice:
            images = ", ".join((*holders[other], *holders[choice]))
            raise CellblockError(
                f"images need {choice.name} in two versions, {other.version} and {choice.version}: {images}",
                hint="a lock holds one version of a package: ask for the same in all images",
            )
    chosen = [
        universe.versions(choice.name, choice.version, choice.architecture)[0] for choice in versions.values()
    ]
    providers = providers_of(chosen)
    return [
        _package(choice, tuple(holders[choice]), universe, indexes, archives, providers)
        for choice in sorted(holders, key=lambda choice: choice.name)
    ]


def _package(
    choice: Choice,
    images: tuple[str, ...],
    universe: Universe,
    indexes: Sequence[Index],
    archives: Sequence[PackageArchive],
    providers: Mapping[str, Sequence[str]],
) -> LockedPackage:
    stanzas = universe.versions(choice.name, choice.version, choice.architecture)
    first = stanzas[0]
    sha256 = first.field(b"SHA256").decode()
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        line = archives[indexes[first.index].archive].line
        raise CellblockError(
            f"the archive gives no SHA-256 for {choice.name} {choice.version}: {line}",
            hint="have its index made with SHA-256 (dpkg-scanpackages and apt-ftparchive do)",
        )
    secure = [stanza for stanza in stanzas if _is_security(indexes[stanza.index], archives)]
    index = indexes[(secure or stanzas)[0].index]
    archive = archives[index.archive]
    origin = index.release.get("origin") or index.release.get("label") or archive.uris[0]
    # A flat archive has no components, and its suite is a folder.
    flat = not archive.components
    suite = index.release.get("suite", "") if flat else archive.suite
    component = "" if flat else index.component
    return LockedPackage(
        name=choice.name,
        version=choice.version,
        architecture=choice.architecture,
        sha256=sha256,
        size=int(first.field(b"Size")),
        installed_size=int(first.field(b"Installed-Size") or 0) * 1024,
        filename=first.field(b"Filename").decode().removeprefix("./"),
        archive=indexes[first.index].archive,
        origin=f"{origin} {suite}/{component}".strip(" /"),
        security=bool(secure),
        images=images,
        depends=dependencies(first, providers),
    )


def _is_security(index: Index, archives: Sequence[PackageArchive]) -> bool:
    """Whether a list is of a security suite, which Debian and Ubuntu call SUITE-security."""
    names = (archives[index.archive].suite, index.release.get("suite", ""), index.release.get("label", ""))
    return any(name.lower().endswith("-security") for name in names)


def _newest(dates: Iterable[str]) -> str:
    """The newest of some Release files' dates, as RFC 3339; empty when none has one."""
    known = [parsedate_to_datetime(date) for date in dates if date]
    return max(known).strftime("%Y-%m-%dT%H:%M:%SZ") if known else ""
