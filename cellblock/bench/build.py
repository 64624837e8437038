# SPDX-License-Identifier: Apache-2.0
"""Measures building images, beside `buildah build` and `docker build` of the same images on this machine."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cellblock import paths
from cellblock.bench.harness.scratch import environment, scratch
from cellblock.bench.peers import build_peers
from cellblock.bench.peers.build_peers import Peer
from cellblock.build import BuildRequest, BuildResult, build_images, copy_images
from cellblock.build.prepare import prepare
from cellblock.build.run import package_store
from cellblock.engine import apt
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.packages.store import link
from cellblock.packages.unpacked_deb import Unpacker

CHANGED_FILE = "worker/files/usr/lib/cellblock/nsswitch-sshd.conf"
"""The file that changes, below the folder of definitions: comments are ignored in it."""

ADDED_PACKAGE = "hello"
"""A package that no image has: small, without dependencies but libc6, in every distribution."""

_NOOP_RUNS = 5

_AT_HAND = ("debs", "lists", "resolved")
"""What a cold build finds in the cache: packages, the archives' lists, and what was resolved from them."""


@dataclass(frozen=True)
class OurBuild:
    """Cellblock's own figures; `bytes` is what a push of all images takes.

    `take_apart_s` is what is done to debs when they are fetched, on all processors and without the network.
    """

    take_apart_s: float
    cold_s: float
    one_file_s: float
    one_package_s: float
    noop_ms: tuple[float, ...]
    bytes: int


@dataclass(frozen=True)
class BuildFigures:
    """One run: ours and the peers' on one machine, one after the other."""

    variant: str
    images: tuple[str, ...]
    ours: OurBuild
    buildah: Peer
    docker: Peer | None
    their_bytes: int
    root_s: float
    seconds: float

    def keys(self) -> dict[str, float | str | None]:
        """The keys that `build.py bench build --json` prints."""
        ours = self.ours
        keys: dict[str, float | str | None] = {
            "variant": self.variant,
            # Ours begins with packages, and so must theirs: making the base's tar is part of it.
            "ratio_buildah": self._ratio(self.buildah, self.root_s),
            "ratio_docker": self._ratio(self.docker, self.root_s),
            "ratio_buildah_root_given": self._ratio(self.buildah),
            "ratio_docker_root_given": self._ratio(self.docker),
            "one_file_s": round(ours.one_file_s, 2),
            "one_package_s": round(ours.one_package_s, 2),
            "noop_ms": round(statistics.median(ours.noop_ms), 1),
            "bytes_ratio": round(ours.bytes / self.their_bytes, 3),
            "ours_s": round(ours.cold_s, 2),
            "take_apart_s": round(ours.take_apart_s, 2),
            "ours_bytes": ours.bytes,
            "containerfile_bytes": self.their_bytes,
            "containerfile_root_s": round(self.root_s, 2),
        }
        for name, peer in {"buildah": self.buildah, "docker": self.docker}.items():
            for way, seconds in peer.seconds.items() if peer else ():
                keys[f"{name}_s_{way.lower().replace(' ', '_')}"] = round(seconds, 2)
        return keys

    def _ratio(self, peer: Peer | None, more_s: float = 0.0) -> float | None:
        return round(self.ours.cold_s / (peer.best + more_s), 3) if peer else None


def build_cost(variant: str | None, events: Events) -> BuildFigures:
    """Measure the build of all images of a variant (none: the host's) by all builders.

    Takes minutes and some gigabytes of /var/tmp. dockerd is left out, with a warning, where it is not
    installed. Raises CellblockError when a build fails.
    """
    started = time.monotonic()
    prepared = prepare(BuildRequest((), variant), events)
    name, images = prepared.variant.name, prepared.wanted
    store = package_store()
    store.fetch(prepared.lock.packages.values(), prepared.archives, events)
    docker = None
    with scratch() as folder:
        given = build_peers.materials(prepared.lock, name, images, store, folder, events)
        debs = [store.path(package) for package in prepared.lock.packages.values()]
        ours = our_build(name, debs, folder, events)
        buildah, their_bytes = build_peers.buildah(given, events)
        if shutil.which("dockerd"):
            docker = build_peers.docker(given, folder, events)
        else:
            events.warning("docker build is not measured: apt-get install docker.io")
    seconds = time.monotonic() - started
    return BuildFigures(name, images, ours, buildah, docker, their_bytes, given.root_s, seconds)


def _take_apart(debs: Sequence[Path], folder: Path, events: Events) -> float:
    """Seconds to take all debs apart, as fetching does."""
    links = []
    for deb in debs:
        links.append(folder / deb.name)
        link(deb, links[-1])
    unpacker = Unpacker(apt.DPKG_EXCLUDES)
    started = time.monotonic()
    with events.step("cellblock", "take debs apart"), ThreadPoolExecutor() as pool:
        list(pool.map(unpacker.unpack, links))
    return time.monotonic() - started


def our_build(variant: str, debs: Sequence[Path], folder: Path, events: Events) -> OurBuild:
    """Cellblock's own build: cold, with a changed file, with an added package, with nothing to do.

    The cache has all packages of the project's images and knows which they are; nothing else.
    """
    definitions = folder / "images"
    shutil.copytree(paths.PROJECT / "images", definitions)
    with scratch(folder) as apart:
        take_apart_s = _take_apart(debs, apart, events)
    with scratch(folder) as cache:
        for name in _AT_HAND:
            (paths.cache() / name).mkdir(parents=True, exist_ok=True)
            (cache / name).symlink_to(paths.cache() / name)
        with environment({"CELLBLOCK_CACHE": str(cache)}):
            cold = _build(variant, paths.PROJECT / "images", "cold", events)
            copy_images(cold, cache / "push")
            size = build_peers.bytes_of_blobs(cache / "push")
            # Whoever runs the command a second time has run it before.
            _noop_ms(variant)
            noop_ms = tuple(_noop_ms(variant) for _ in range(_NOOP_RUNS))
            changed = definitions / CHANGED_FILE
            changed.write_text(changed.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
            one_file = _build(variant, definitions, "one file", events)
            changed.write_bytes((paths.PROJECT / "images" / CHANGED_FILE).read_bytes())
            _add_package(definitions / "worker" / "image.yaml")
            one_package = _build(variant, definitions, "one package", events)
    return OurBuild(take_apart_s, cold.seconds, one_file.seconds, one_package.seconds, noop_ms, size)


def _build(variant: str, definitions: Path, step: str, events: Events) -> BuildResult:
    with events.step("cellblock", step):
        result = build_images(BuildRequest((), variant, definitions=definitions), events)
    if not result.built:
        raise CellblockError(
            f"the build '{step}' found everything built", hint="do not change the tree while it is measured"
        )
    return result


def _noop_ms(variant: str) -> float:
    """Milliseconds of the whole command when nothing changed."""
    argv = [sys.executable, str(paths.PROJECT / "build.py"), "build", "--variant", variant]
    started = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    milliseconds = (time.monotonic() - started) * 1000
    if done.returncode or "up to date" not in done.stdout:
        raise CellblockError(
            f"a build with nothing to do did something: {done.stdout}{done.stderr}",
            hint="do not change the tree while it is measured",
        )
    return milliseconds


def _add_package(path: Path) -> None:
    """Declare one more package, as a person would."""
    text = path.read_text(encoding="utf-8")
    added = text.replace("packages:\n", f"packages:\n  - {ADDED_PACKAGE}\n", 1)
    if added == text:
        raise CellblockError(
            f"{path}: no list of packages to add one to", hint="correct cellblock/bench/build.py"
        )
    path.write_text(added, encoding="utf-8")
