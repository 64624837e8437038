# SPDX-License-Identifier: Apache-2.0
"""Writes the images of a variant as one Containerfile with its build context (`render containerfile`).

Each image is a stage, so that images share the stages that they stand on; `--target IMAGE` chooses one.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cellblock import paths
from cellblock.build.extra_archives import extra_archives
from cellblock.build.mirrors import Archive, archive
from cellblock.build.references import reference
from cellblock.build.rendering import refuse_unavailable, render_images
from cellblock.build.steps import recipe_of
from cellblock.engine.build_context import make_root, write_context
from cellblock.engine.recipe import Recipe
from cellblock.engine.stages import NAME, SOURCES_ARGUMENT, Stage, stages_of
from cellblock.errors import UsageError
from cellblock.events import Events, Output
from cellblock.process import Programs
from cellblock.project import Project
from cellblock.variants import Variant

SUBJECT = "context"
"""Under this name writing a build context appears among the events."""

_MARK = "# Written by Cellblock: build.py render containerfile"


@dataclass(frozen=True)
class RenderRequest:
    """What to render: images by name (none: all) of a variant (none: the newest stable of the host)."""

    images: tuple[str, ...] = ()
    variant: str | None = None
    mirrors: tuple[str, ...] = ()
    definitions: Path = field(default_factory=lambda: paths.PROJECT / "images")
    archive: Archive | None = None
    """Where packages come from, in the place of what `mirrors` and the machine say."""
    sites: tuple[Path, ...] = ()
    """Folders of a site's own definitions (`--images`)."""


@dataclass(frozen=True)
class Containerfile:
    """A rendered Containerfile; what `stages` name of this machine exists while `rendered` lasts."""

    variant: Variant
    images: tuple[str, ...]
    """Those asked for; stages of what they need stand before them."""
    recipes: tuple[Recipe, ...]
    stages: tuple[Stage, ...]
    local_archives: tuple[Path, ...]

    @property
    def text(self) -> str:
        """The whole file."""
        return "\n".join([_head(self), *(stage.text() for stage in self.stages)])

    def write(self, folder: Path, events: Events) -> None:
        """Write the file and everything it adds or copies to `folder`, the base's tar included.

        Raises UsageError when `folder` holds anything else, ProgramFailed when the tar cannot be made.
        """
        target = folder / NAME
        if folder.is_dir() and any(folder.iterdir()) and not _ours(target):
            raise UsageError(
                f"{folder} holds something else than a rendered build context", hint="name a new folder"
            )
        # First, so that a folder that was not finished is known to be ours when it is tried again.
        folder.mkdir(parents=True, exist_ok=True)
        target.write_text(self.text, encoding="utf-8")
        with events.step(SUBJECT, "files"):
            write_context(self.stages, folder)
        for stage in self.stages:
            for name, command in stage.roots:
                with events.step(SUBJECT, "bootstrap"):
                    make_root(folder, name, command, Programs(), _line(events))


@contextmanager
def rendered(request: RenderRequest, events: Events | None = None) -> Iterator[Containerfile]:
    """Plan `request` and render it.

    Raises DefinitionError and UsageError for what is wrong with it, CellblockError for what no
    Containerfile can say.
    """
    project = Project(request.definitions, request.sites)
    variant, order = project.variant(request.variant), project.in_order(request.images)
    refuse_unavailable(project.variants, variant, order)
    source = request.archive
    if source is None:
        source = archive(variant, request.mirrors)
        events = events or Events()
        extras = extra_archives(variant, source, events)
        # Without stand-ins: who builds elsewhere has the archives of the distribution, and no others.
        named = replace(extras, stand_ins=None)
        named.ensure(events)
        source = named.added_to(source)
    images = render_images(variant, order)
    with tempfile.TemporaryDirectory(prefix="cellblock-") as staging:
        stages: list[Stage] = []
        recipes: dict[str, Recipe] = {}
        commands: dict[str, bool] = {}
        for name, image in images.items():
            files = Path(staging, name)
            files.mkdir()
            recipe = recipes[name] = recipe_of(
                image,
                source,
                files,
                references=(reference(name, variant),),
                # Each image is a stage, by its name.
                made_from={need: need for need in image.image.needs()},
                reproduce=f"build.py build {name} -v {variant.name}{project.options}",
            )
            inherits = commands.get(recipe.parent or "", False)
            stages += stages_of(recipe, recipe.made_from.__getitem__, inherits_command=inherits)
            commands[name] = bool(recipe.config.entrypoint or recipe.config.command)
        wanted = tuple(request.images or images)
        yield Containerfile(variant, wanted, tuple(recipes.values()), tuple(stages), source.local)


def _line(events: Events) -> Callable[[str], None]:
    return lambda text: events.emit(Output(SUBJECT, "bootstrap", text))


def _ours(path: Path) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8", errors="replace").startswith(_MARK)


def _head(file: Containerfile) -> str:
    target = file.images[-1]
    tag = shlex.quote(f"{target}:{file.variant.name}")
    archive_line = f"--build-arg {SOURCES_ARGUMENT}='deb [trusted=yes]"
    lines = [
        f"{_MARK} {' '.join(file.images)} --variant {file.variant.name}",
        f"# {file.variant.summary}, {file.variant.arch.debian}",
        "#",
        "# Build an image in the folder of this file (`--output` writes it, with all that is copied below):",
        f"#   buildah build --layers --target {target} --tag {tag} .",
        f"#   docker build --file {NAME} --target {target} --tag {tag} .",
        "#",
        f"# Packages come from the sources that the base holds, or from those of {SOURCES_ARGUMENT}. With",
        "# packages at hand, in an archive that is mounted (buildah) or served on loopback (any builder):",
        f"#   --volume /srv/archive:/mnt:ro {archive_line} file:/mnt ./'",
        f"#   --network host {archive_line} http://127.0.0.1:8000 ./'",
        "#",
        "# A RUN ends with the removal of what only the build needed or what is a machine's own: lists of",
        "# packages, logs, keys, identities. No layer holds them.",
        "",
    ]
    return "\n".join(lines)
