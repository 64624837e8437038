# SPDX-License-Identifier: Apache-2.0
"""Measures how many bytes a node pulls before its first job, and for an update of one package, and how long.

A node is podman with a storage of its own. A registry on loopback counts the bytes. The first job is
`slurmd -V` in a container of the image: pull, unpack and start, without a controller. "Last week's image" is
the same image before one source package (openssl) was updated.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from cellblock.bench.harness.counting_proxy import CountingProxy, counting_proxy
from cellblock.bench.harness.registry import push, registry
from cellblock.bench.harness.scratch import scratch, storage
from cellblock.bench.parts.pull_chunked import chunked_pulls
from cellblock.bench.peers import build_peers
from cellblock.bench.peers.container_peers import PODMAN, RUN_OPTIONS
from cellblock.build import BuildRequest, build_images
from cellblock.build.prepare import Prepared, prepare
from cellblock.build.references import reference
from cellblock.build.run import package_store
from cellblock.errors import CellblockError
from cellblock.events import Events
from cellblock.oci.layer import open_layer, store_layer
from cellblock.oci.layout import Layout, StoredImage
from cellblock.process import Programs
from cellblock.release import spreading
from cellblock.store.image_store import image_store

IMAGE = "worker"
UPDATED = "openssl"
"""A source package whose binary is in every image, and that is updated several times a year."""
_JOB = ("/usr/sbin/slurmd", "-V")


@dataclass(frozen=True)
class Way:
    """An image in one form: seconds and bytes to a first job on a node with nothing, and with last week's.

    None: not measured.
    """

    first_s: float
    first_bytes: int
    update_s: float | None = None
    update_bytes: int | None = None

    @property
    def ratio(self) -> float | None:
        """The part of a whole pull that the update moves."""
        return None if self.update_bytes is None else round(self.update_bytes / self.first_bytes, 4)


@dataclass(frozen=True)
class PullFigures:
    """By form; `as_built_ratio` is of the layers as they are built: that of the package, and all above.

    `ratios` are of every source package: its layer and the last, of all bytes.
    """

    ways: Mapping[str, Way]
    as_built_ratio: float
    ratios: tuple[float, ...]
    seconds: float

    def keys(self) -> dict[str, float | None]:
        """The keys that `build.py bench pull --json` prints: ours is what `push --spread` sends."""
        ours = self.ways["spread"]
        keys: dict[str, float | None] = {
            "first_job_s": round(ours.first_s, 2),
            "first_job_bytes": ours.first_bytes,
            "update_bytes_ratio": ours.ratio,
            "update_bytes_ratio_median": round(statistics.median(self.ratios), 4),
            "update_bytes_ratio_as_built": round(self.as_built_ratio, 4),
            "packages_within_5_percent": round(
                sum(each <= 0.05 for each in self.ratios) / len(self.ratios), 3
            ),
        }
        for name, way in self.ways.items():
            keys[f"{name}_first_job_s"] = round(way.first_s, 2)
            keys[f"{name}_first_job_bytes"] = way.first_bytes
            if way.update_s is not None:
                keys[f"{name}_update_s"] = round(way.update_s, 2)
                keys[f"{name}_update_bytes"] = way.update_bytes
                keys[f"{name}_update_bytes_ratio"] = way.ratio
        return keys


def pull_cost(variant: str | None, events: Events) -> PullFigures:
    """Build the worker's image and measure it in all forms. Takes minutes and 4 GB of /var/tmp.

    Raises CellblockError when a build, a push or a pull fails.
    """
    started = time.monotonic()
    prepared = prepare(BuildRequest((IMAGE,), variant), events)
    build_images(BuildRequest((IMAGE,), variant), events)
    store = image_store()
    built = store.image(reference(IMAGE, prepared.variant))
    ways: dict[str, Way] = {}
    with scratch() as folder, registry(folder, ()) as host, counting_proxy(host) as proxy:
        node = _Node(host, proxy, events)
        with events.step("spread", "the image, and the image with an update"):
            old, new, ratios = _spread_both(store, built, folder)
        pair = [f"oci:{old.folder}:{IMAGE}", f"oci:{new.folder}:{IMAGE}"]
        as_built = Layout(folder / "as-built")
        store.copy_to({IMAGE: reference(IMAGE, prepared.variant)}, as_built)
        ways["built"] = node.measure("built", [f"oci:{as_built.folder}:{IMAGE}"])
        ways["spread"] = node.measure("spread", pair)
        ways["chunked"] = _chunked(chunked_pulls(pair, folder, host, proxy, events))
        ways["buildah"] = node.measure("buildah", _by_buildah(prepared, folder, events))
    return PullFigures(ways, _as_built(store, built), ratios, time.monotonic() - started)


@dataclass(frozen=True)
class _Node:
    """A machine that pulls from the registry `host`, through `proxy`."""

    host: str
    proxy: CountingProxy
    events: Events

    def measure(self, name: str, images: Sequence[str]) -> Way:
        """Push the images (last week's, if there is one, and the new one), and time a node's pulls."""
        for tag, image in enumerate(images):
            push(image, f"docker://{self.host}/bench/{name}:{tag}")
        with self.events.step(name, "a node with nothing"):
            first_s, first_bytes = self._first_job(name, [len(images) - 1])
        if len(images) == 1:
            return Way(first_s, first_bytes)
        with self.events.step(name, "a node with last week's image"):
            update_s, update_bytes = self._first_job(name, [0, 1])
        return Way(first_s, first_bytes, update_s, update_bytes)

    def _first_job(self, name: str, tags: list[int]) -> tuple[float, int]:
        """Seconds and bytes of the last of the tags, on a new storage."""
        with scratch() as place:
            variables = storage(place)
            for tag in tags:
                image = f"{self.proxy.address}/bench/{name}:{tag}"
                self.proxy.taken()
                # What was written before is not this pull's: podman flushes the layers that it writes.
                os.sync()
                began = time.perf_counter()
                _podman(["pull", "--quiet", "--tls-verify=false", image], variables)
                program, *arguments = _JOB
                _podman(["run", *RUN_OPTIONS, f"--entrypoint={program}", image, *arguments], variables)
                found = time.perf_counter() - began, self.proxy.taken()
            _podman(["rmi", "--all", "--force"], variables)
        return found


def _chunked(pulls: Sequence[tuple[float, int]]) -> Way:
    """Of both images to one node: the first is a node's with nothing."""
    (first_s, first_bytes), (update_s, update_bytes) = pulls
    return Way(first_s, first_bytes, update_s, update_bytes)


def _podman(arguments: list[str], variables: Mapping[str, str]) -> None:
    done = subprocess.run(
        [*PODMAN, *arguments], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CellblockError(
            f"podman {arguments[0]} ended with status {done.returncode}: {done.stderr.strip()}",
            hint="correct what it says, then run the benchmark again",
        )


def _spread_both(store: Layout, built: StoredImage, folder: Path) -> tuple[Layout, Layout, tuple[float, ...]]:
    """Layouts of the image as it is and updated, both spread; and the part that each update moves."""
    old, new, changed = (Layout(folder / name) for name in ("old", "new", "changed"))
    for name in ("unpacked", "scratch-old", "scratch-new"):
        (folder / name).mkdir()
    spreading.spread(built, store, old, folder / "scratch-old", IMAGE)
    root = folder / "unpacked/root"
    spreading.unpack(built, store, root, folder / "unpacked")
    later = _update(root, built)
    created = datetime.fromtimestamp(later).astimezone().isoformat()
    layer = store_layer(root, [], changed, later)
    configuration = replace(built.configuration, diff_ids=(layer.diff_id,), created=created, history=())
    written = changed.write(configuration.to_bytes(), built.manifest.config.media_type)
    image = changed.add(
        replace(built.manifest, config=written, layers=(layer.descriptor,)), configuration, [IMAGE]
    )
    spreading.spread(image, changed, new, folder / "scratch-new", IMAGE)
    return old, new, tuple(_ratios(new.image(IMAGE), root))


def _update(root: Path, built: StoredImage) -> int:
    """Change the unpacked image as an update of `UPDATED` a week later would. The new SOURCE_DATE_EPOCH."""
    epoch = spreading.epoch_of(built)
    later = epoch + int(timedelta(days=7).total_seconds())
    for folder, folders, names in os.walk(root):
        # A link to a folder counts as one there.
        for place in (Path(folder), *(Path(folder, name) for name in (*folders, *names))):
            if place.lstat().st_mtime >= epoch:
                os.utime(place, (later, later), follow_symlinks=False)
    status = root / "var/lib/dpkg/status"
    text = status.read_text()
    for key in spreading.packages_of_source(root, UPDATED):
        for line in (root / f"var/lib/dpkg/info/{key}.list").read_text().splitlines():
            place = root / line.lstrip("/")
            if place.is_file() and not place.is_symlink():
                _touch_every_page(place)
        stanza = next(
            each for each in text.split("\n\n") if each.startswith(f"Package: {key.partition(':')[0]}\n")
        )
        text = text.replace(stanza, stanza.replace("\nVersion: ", "\nVersion: 9:", 1))
    status.write_text(text)
    os.utime(status, (later, later))
    return later


def _touch_every_page(place: Path) -> None:
    """Another content of the same size and kind: a program that is compiled again has other addresses."""
    data = bytearray(place.read_bytes())
    for at in range(0, len(data), 512):
        data[at] ^= 1
    time_ns = place.stat().st_mtime_ns + 24 * 3600 * 10**9
    place.write_bytes(data)
    os.utime(place, ns=(time_ns, time_ns))


def _ratios(image: StoredImage, root: Path) -> Iterator[float]:
    sizes = {
        str(entry["created_by"]).removeprefix("cellblock: "): layer.size
        for entry, layer in zip(image.configuration.history, image.manifest.layers, strict=True)
    }
    last = image.manifest.layers[-1].size + image.descriptor.size + image.manifest.config.size
    for source in spreading.sources_of(root):
        yield (sizes.get(source, sizes.get(spreading.shared_layer(source), 0)) + last) / image.size


def _as_built(store: Layout, built: StoredImage) -> float:
    """The part that an update moves of the layers as they are built: those from the package's own one up."""
    layers = built.manifest.layers
    for number, layer in enumerate(layers):
        with open_layer(store.blob(layer.digest)) as tar:
            if _names(tar.read(), UPDATED):
                return sum(each.size for each in layers[number:]) / built.size
    raise CellblockError(f"no layer of {IMAGE} has {UPDATED}", hint="correct cellblock/bench/pull.py")


def _names(tar: bytes, source: str) -> bool:
    return f"usr/bin/{source}".encode() in tar or b"libssl.so.3" in tar


def _by_buildah(prepared: Prepared, folder: Path, events: Events) -> list[str]:
    """The image as `buildah build` makes it of Cellblock's Containerfile, twice from nothing."""
    packages = package_store()
    packages.fetch(prepared.lock.packages.values(), prepared.archives, events)
    place = folder / "buildah"
    place.mkdir()
    given = build_peers.materials(
        prepared.lock, prepared.variant.name, prepared.wanted, packages, place, events
    )
    found = []
    for number in range(2):
        with scratch() as made:
            variables = storage(made)
            argv = build_peers.one_file_command(given, IMAGE)
            with events.step("buildah", f"build {number + 1} of 2"):
                Programs().run(argv, env=dict(variables))
            target = f"oci:{folder}/buildah-{number}:{IMAGE}"
            Programs().run(
                ["buildah", "push", "--quiet", given.references[IMAGE], target], env=dict(variables)
            )
        found.append(target)
    return found
