# SPDX-License-Identifier: Apache-2.0
"""Measures how long `buildah build` and `docker build` take for the images that `bench build` builds.

Each starts without images and without a layer cache, with all debs and lists on this machine's disk, so the
network has no part in the time. Of the ways in which a person would do it, all are measured and the fastest
counts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellblock.bench.harness.dockerd import private_dockerd
from cellblock.bench.harness.scratch import scratch, storage
from cellblock.build.containerfile import Containerfile, RenderRequest, rendered
from cellblock.build.mirrors import Archive
from cellblock.engine.archive_server import serve
from cellblock.engine.recipe import Recipe
from cellblock.engine.stages import NAME, SOURCES_ARGUMENT, stages_of
from cellblock.events import Events, Output, Progress
from cellblock.lock.model import Lock
from cellblock.packages.repository import write_repository
from cellblock.packages.store import PackageStore
from cellblock.process import Programs


@dataclass(frozen=True)
class Materials:
    """What the peers build from.

    `context` holds the Containerfile of all images and, for each, one of its own that begins with the
    image it stands on, called NAME.IMAGE. `archive` is the flat archive of all debs, `line` its
    sources.list(5) line. `references`: the names that the latter give each other's images.
    """

    context: Path
    archive: Path
    line: str
    references: Mapping[str, str]
    root_s: float
    """Seconds that making the tar of the base took; no part of the peers' times."""


@dataclass(frozen=True)
class Peer:
    """Seconds to build all images, by the way they were built."""

    seconds: Mapping[str, float]

    @property
    def best(self) -> float:
        """Seconds of the fastest way."""
        return min(self.seconds.values())


def materials(
    lock: Lock, variant: str, images: Sequence[str], store: PackageStore, folder: Path, events: Events
) -> Materials:
    """Render the Containerfiles of `images` below `folder`, with the debs of `lock`, which `store` has."""
    repository = folder / "archive"
    write_repository(lock.packages.values(), store, repository)
    # Read by apt's sandbox user where a builder runs it unconfined.
    repository.chmod(0o755)
    line = f"deb [trusted=yes] file:{repository} ./"
    context = folder / "context"
    asked = RenderRequest(tuple(images), variant, archive=Archive((line,), (repository,)))
    with rendered(asked) as file:
        started = time.monotonic()
        file.write(context, events)
        root_s = time.monotonic() - started
        _write_alone(file, context)
        references = {recipe.image: _tag(recipe) for recipe in file.recipes}
    return Materials(context, repository, line, references, root_s)


def buildah(given: Materials, events: Events) -> tuple[Peer, int]:
    """Time `buildah build`; also the bytes that pushing the images takes, by the way that takes fewest.

    Raises ProgramFailed when a build fails.
    """

    def one_file(image: str) -> list[str]:
        return one_file_command(given, image)

    def file_each(image: str) -> list[str]:
        name = ["--file", str(context / f"{NAME}.{image}"), "--tag", given.references[image]]
        return ["buildah", "build", "--pull-never", *_sources(given), *name, str(context)]

    context = given.context
    seconds, pushed = {}, []
    for way, command in {"one file": one_file, "a file an image": file_each}.items():
        with scratch() as place:
            variables = storage(place)
            seconds[way] = _timed(f"buildah, {way}", command, given, variables, events)
            pushed.append(pushed_bytes(given.references.values(), variables, place / "push", events))
    return Peer(seconds), min(pushed)


def one_file_command(given: Materials, image: str) -> list[str]:
    """The command that builds `image`, and what it stands on, of the one Containerfile of all images."""
    target = ["--target", image, "--tag", given.references[image]]
    return ["buildah", "build", "--layers", "--jobs", "2", *_sources(given), *target, str(given.context)]


def _sources(given: Materials) -> list[str]:
    line = given.line.replace(str(given.archive), "/mnt")
    return ["--volume", f"{given.archive}:/mnt:ro", "--build-arg", f"{SOURCES_ARGUMENT}={line}"]


def docker(given: Materials, folder: Path, events: Events) -> Peer:
    """Time `docker build` with a dockerd of its own, with BuildKit where there is one, and without.

    Raises CellblockError when dockerd is not installed, ProgramFailed when a build fails.
    """
    seconds = {}
    for way, program in docker_commands().items():
        with (
            scratch(folder) as place,
            private_dockerd(place) as address,
            serve([given.archive], [given.line]) as sources,
        ):
            arguments = ["--network", "host", "--build-arg", f"{SOURCES_ARGUMENT}={sources[0]}"]
            arguments += ["--file", str(given.context / NAME)]

            def command(
                image: str, program: str = program, arguments: Sequence[str] = tuple(arguments)
            ) -> list[str]:
                target = ["--target", image, "--tag", given.references[image]]
                return [program, "build", *arguments, *target, str(given.context)]

            variables = {"DOCKER_HOST": address, "DOCKER_BUILDKIT": "1" if way == "BuildKit" else "0"}
            seconds[way] = _timed(f"docker, {way}", command, given, variables, events)
    return Peer(seconds)


def pushed_bytes(
    references: Iterable[str],
    variables: Mapping[str, str],
    folder: Path,
    events: Events,
) -> int:
    """Bytes that a registry without any of the images is sent: each blob once, layers with gzip."""
    names = list(references)
    for number, reference in enumerate(names):
        events.emit(Progress("push", number, len(names), "images"))
        argv = ["buildah", "push", "--quiet", reference, f"oci:{folder}:image{number}"]
        Programs().run(argv, env=dict(variables))
    return bytes_of_blobs(folder)


def bytes_of_blobs(layout: Path) -> int:
    """Bytes of all blobs of an OCI layout."""
    return sum(path.stat().st_size for path in (layout / "blobs").rglob("*") if path.is_file())


def _tag(recipe: Recipe) -> str:
    """No name that a person uses: the image is not what `build` makes."""
    return f"{recipe.references[0]}.bench"


def _write_alone(file: Containerfile, context: Path) -> None:
    """A Containerfile for each image, which begins with the image that it stands on."""
    commands = {recipe.image: recipe.config for recipe in file.recipes}
    tags = {recipe.image: _tag(recipe) for recipe in file.recipes}
    for recipe in file.recipes:
        parent = commands.get(recipe.parent or "")
        inherits = bool(parent and (parent.entrypoint or parent.command))
        stages = stages_of(recipe, tags.__getitem__, inherits_command=inherits)
        text = "\n".join(stage.text() for stage in stages)
        (context / f"{NAME}.{recipe.image}").write_text(text, encoding="utf-8")


def _timed(
    subject: str,
    command: Callable[[str], list[str]],
    given: Materials,
    variables: Mapping[str, str],
    events: Events,
) -> float:
    """Seconds that the commands for all images take, one after the other."""
    started = time.monotonic()
    for number, image in enumerate(given.references):
        events.emit(Progress(subject, number, len(given.references), "images"))

        def line(text: str, image: str = image) -> None:
            events.emit(Output(subject, image, text))

        with events.step(subject, image):
            Programs().run(command(image), on_line=line, env=dict(variables))
    return time.monotonic() - started


def docker_commands() -> dict[str, str]:
    """The docker command for each builder: BuildKit came with the command once, and is a plugin now."""
    commands = {"classic": "docker"}
    folders = os.environ.get("PATH", "").split(os.pathsep)
    for program in filter(None, (shutil.which("docker", path=folder) for folder in folders)):
        ask = [program, "build", "--help"]
        done = subprocess.run(
            ask,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "DOCKER_BUILDKIT": "1"},
        )
        if "--progress" in done.stdout and "buildx component is missing" not in done.stderr:
            return {"BuildKit": program, **commands}
    return commands
