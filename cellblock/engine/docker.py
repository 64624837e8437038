# SPDX-License-Identifier: Apache-2.0
"""Builds Containerfiles with dockerd, a stage at a time, and tags, lists and removes its images.

Each stage is sent to dockerd through the docker SDK with the files that it copies. It stands on the other
images, named by their keys, instead of containing their stages. The classic builder is used, the only one
that the SDK speaks to: it is in every version of dockerd that distributions carry.

What Ctrl-C or a crash leaves behind: dockerd ends a build whose connection closes and removes its container;
layers of finished instructions stay in its cache. A tag is only ever given to a finished image.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import kwargs_from_env
from urllib3.exceptions import HTTPError

from cellblock.engine.advice import advice
from cellblock.engine.archive_server import serve
from cellblock.engine.build_context import make_root, write_context
from cellblock.engine.build_log import BuildLog
from cellblock.engine.recipe import Bootstrap, BuiltImage, Install, Recipe, StepFailed, StepReport
from cellblock.engine.stages import NAME, SOURCES_ARGUMENT, Stage, stages_of
from cellblock.errors import CellblockError
from cellblock.process import TAIL_LINES, Finished, ProgramFailed, Programs

# Seconds for requests that answer at once; a build's stream may be silent for as long as a step runs.
_TIMEOUT_S = 120


def images() -> Mapping[str, BuiltImage]:
    """All images of the daemon, by each of their references. Raises CellblockError without a daemon."""
    with _client() as client:
        found = client.images()
    return {
        name: BuiltImage(name, _hexadecimal(image["Id"]), image["Size"], image["Created"])
        for image in found
        for name in image.get("RepoTags") or ()
    }


def tag(image: BuiltImage, reference: str) -> BuiltImage:
    """Give `image` the reference `reference` as well."""
    with _client() as client:
        _tag(client, f"sha256:{image.id}", reference)
    return replace(image, reference=reference)


def remove(reference: str) -> bool:
    """Take the reference away, and the image with its last one; False when it is in use."""
    with _client() as client:
        try:
            client.remove_image(reference)
        except APIError:
            return False
    return True


def build(recipe: Recipe, report: StepReport, *, keep_failed: bool = False) -> None:
    """Build `recipe`'s stage and tag it. Raises StepFailed naming the step; then nothing is tagged."""
    with _client() as client, tempfile.TemporaryDirectory(prefix="cellblock-") as folder:
        stages = stages_of(
            recipe,
            recipe.made_from.__getitem__,
            inherits_command=_has_command(client, recipe.made_from.get(recipe.parent or "")),
        )
        _write_context(stages, Path(folder), recipe, report)
        with serve(recipe.local_archives, _all_sources(recipe)) as sources:
            arguments = {SOURCES_ARGUMENT: "\n".join(sources)} if recipe.local_archives else {}
            log = BuildLog([each for stage in stages for each in stage.all_instructions()], report)
            try:
                lines = client.build(
                    path=folder,
                    dockerfile=NAME,
                    buildargs=arguments,
                    # As with the other engine, whose steps run in this machine's network; and an
                    # archive that is served here is on its loopback.
                    network_mode="host",
                    rm=True,
                    forcerm=not keep_failed,
                    decode=True,
                    timeout=None,
                )
                with log:
                    for line in lines:
                        log.entry(line)
            except (DockerException, requests.RequestException, HTTPError, OSError, ValueError) as error:
                raise CellblockError(
                    f"image {recipe.image}: step '{log.title}': the connection to dockerd broke: {error}",
                    hint=f"see dockerd's log; then {recipe.reproduce}",
                ) from error
        if log.error or not log.image:
            raise _step_failed(log, recipe, keep_failed=keep_failed)
        for reference in recipe.references:
            _tag(client, log.image, reference)


def _write_context(stages: Sequence[Stage], folder: Path, recipe: Recipe, report: StepReport) -> None:
    (folder / NAME).write_text("\n".join(stage.text() for stage in stages), encoding="utf-8")
    write_context(stages, folder)
    for name, command in (root for stage in stages for root in stage.roots):
        try:
            with report.step(Bootstrap.title):
                make_root(folder, name, command, Programs(), report.line)
        except ProgramFailed as error:
            hint = advice(error.finished.tail, recipe.package_cache)
            raise StepFailed(recipe, Bootstrap.title, error.finished, hint=hint) from error


def _step_failed(log: BuildLog, recipe: Recipe, *, keep_failed: bool) -> StepFailed:
    tail = tuple(deque([*log.tail, log.error], TAIL_LINES))
    finished = Finished((log.instruction,), log.status, "", tail)
    hint = _advice(recipe, finished)
    if keep_failed and log.container:
        look = f"look into the root with: {_enter(log.container)}"
        hint = f"{hint}; {look}" if hint else look
    return StepFailed(recipe, log.title, finished, where=_where(log.at), hint=hint)


def _where(at: Sequence[str]) -> str:
    """Which lines of definitions an instruction carries out; dockerd does not tell which of them failed."""
    if len(at) < 2:
        return "".join(at)
    return f"one of the {len(at)} lines from {at[0]} to {at[-1]}"


def _enter(container: str) -> str:
    """A shell line that opens a shell in what a container left."""
    return f"docker run --rm -it --entrypoint sh $(docker commit {container})"


def _all_sources(recipe: Recipe) -> list[str]:
    """The archive's lines, and those that are for building only."""
    build_only = [line for step in recipe.steps if isinstance(step, Install) for line in step.sources]
    return [*recipe.sources, *dict.fromkeys(build_only)]


def address() -> str:
    """Where the daemon listens, as DOCKER_HOST says it."""
    return os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


@contextmanager
def _client() -> Iterator[docker.APIClient]:
    """A client of the daemon that the environment names (DOCKER_HOST, DOCKER_TLS_VERIFY, DOCKER_CERT_PATH).

    Raises CellblockError when no daemon answers, and for what it refuses.
    """
    settings = kwargs_from_env()
    settings.setdefault("base_url", address())
    try:
        # "auto" asks for the daemon's version, so it fails as a ping does.
        client = docker.APIClient(version="auto", timeout=_TIMEOUT_S, **settings)
    except (DockerException, requests.RequestException, OSError) as error:
        raise CellblockError(
            f"no Docker daemon answers at {address()}: {_innermost(error)}",
            hint=f"{how_to_start()}, or build with --engine native",
        ) from error
    try:
        yield client
    except APIError as error:
        raise CellblockError(
            f"dockerd at {address()} refused: {error.explanation or error}", hint="see dockerd's log"
        ) from error
    finally:
        client.close()


def how_to_start() -> str:
    """What to do where no daemon answers."""
    if os.environ.get("DOCKER_HOST"):
        return "correct DOCKER_HOST, or unset it"
    if shutil.which("dockerd") is None:
        return "install Docker (apt-get install docker.io)"
    if Path("/run/systemd/system").is_dir():
        return "start it (systemctl start docker)"
    return "start it (dockerd &)"


def _innermost(error: BaseException) -> str:
    """What happened in the end: the SDK wraps what requests wraps what urllib3 wraps."""
    reason = next((arg for arg in error.args if isinstance(arg, BaseException)), None)
    if reason is not None:
        return _innermost(reason)
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _has_command(client: docker.APIClient, reference: str | None) -> bool:
    if reference is None:
        return False
    try:
        config = client.inspect_image(reference)["Config"]  # type: ignore[no-untyped-call]
    except ImageNotFound as error:
        raise CellblockError(
            f"image {reference} is not in the daemon at {address()}",
            hint="another process removed it; build again",
        ) from error
    return bool(config.get("Entrypoint") or config.get("Cmd"))


def _advice(recipe: Recipe, finished: Finished) -> str:
    if any("No space left on device" in line for line in finished.tail):
        return "free disk space (`df -h`, `docker system prune`)"
    return advice(finished.tail, recipe.package_cache)


def _tag(client: docker.APIClient, id_: str, reference: str) -> None:
    name, _, tag = reference.rpartition(":")
    client.tag(id_, name, tag=tag)


def _hexadecimal(id_: str) -> str:
    return id_.removeprefix("sha256:")
