# SPDX-License-Identifier: Apache-2.0
"""Defines a recipe: how an engine makes one image, as a parent, steps and the image's configuration.

It is data only. build/steps.py makes recipes; build/layer_builder.py carries their steps out, and stages.py
writes them as Containerfiles.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cellblock.errors import CellblockError
from cellblock.process import Finished


@dataclass(frozen=True)
class Bootstrap:
    """Make a root filesystem from a distribution's archive with mmdebstrap.

    `sources` are sources.list(5) lines, or empty for the tool's default mirror.
    """

    suite: str
    architecture: str
    components: tuple[str, ...]
    sources: tuple[str, ...]
    packages: tuple[str, ...]
    apt_options: tuple[str, ...] = ()

    title = "bootstrap"


@dataclass(frozen=True)
class Install:
    """Install packages with apt, without recommended ones. `apt_options` are NAME=VALUE.

    `sources` are sources.list(5) lines beside those of the root, and `preferences` a text of
    apt_preferences(5); the root keeps neither. `manuals`: add the manual pages of all packages of the root.
    """

    packages: tuple[str, ...]
    apt_options: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    preferences: str = ""
    manuals: bool = False
    at: tuple[str, ...] = field(default=(), compare=False)
    """Where a definition asks for them, FILE:LINE: KEY."""

    title = "install packages"


@dataclass(frozen=True)
class Overlay:
    """Lay the tree `folder` over the root: owner root, modes as they are, existing folders kept."""

    folder: Path

    title = "lay files over the root"


@dataclass(frozen=True)
class CopyFrom:
    """Copy files out of the image `image`: (path there, path here).

    `at`: where a definition asks for each file, FILE:LINE: KEY.
    """

    image: str
    files: tuple[tuple[str, str], ...]
    at: tuple[str, ...] = field(default=(), compare=False)

    title = "copy artifacts"


@dataclass(frozen=True)
class Shell:
    """Run shell lines with `sh -euc` inside the root; `title` says what for.

    `at`: where a definition has each line, FILE:LINE: KEY.
    """

    lines: tuple[str, ...]
    title: str = "run"
    at: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class CompileIn:
    """Compile in a throwaway container of the image `image`; only `output` enters the image.

    `sources`: (folder of this machine, path there); the container sees them as its own. `at` and
    `build_at`: where a definition has each line, and the whole of it: FILE:LINE: KEY. `objects`: the folder
    there that may hold objects of an earlier time, or empty.
    """

    image: str
    sources: tuple[tuple[Path, str], ...]
    lines: tuple[str, ...]
    output: str
    objects: str = ""
    at: tuple[str, ...] = field(default=(), compare=False)
    build_at: str = field(default="", compare=False)

    title = "compile"


Step = Bootstrap | Install | Overlay | CopyFrom | Shell | CompileIn


@dataclass(frozen=True)
class ImageConfig:
    """The configuration of an image (OCI image-spec 1.1, config.md)."""

    labels: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    stop_signal: str | None = None


@dataclass(frozen=True)
class Recipe:
    """How to make one image.

    `parent` is an image, or None for an empty root. `references` are given to the result, the first being
    its name; `made_from` are those of the images that it needs, by their names. `package_cache` is a folder
    for lists and packages of its distribution.
    """

    image: str
    references: tuple[str, ...]
    parent: str | None
    steps: tuple[Step, ...]
    config: ImageConfig
    package_cache: Path
    reproduce: str
    """The command by which a person repeats this build."""
    made_from: Mapping[str, str] = field(default_factory=dict)
    local_archives: tuple[Path, ...] = ()
    """Folders behind file:// mirrors: steps that install see them at the same path."""
    sources: tuple[str, ...] = ()
    """The archive's lines of sources.list(5); empty: those that the image has."""
    per_machine: tuple[str, ...] = ()
    """Patterns (absolute paths) of files that packages' scripts make for one machine: in no layer."""


@dataclass(frozen=True)
class BuiltImage:
    """An image that an engine holds.

    `id` is hexadecimal; `size` in bytes, parents included; `created` in seconds since the epoch.
    """

    reference: str
    id: str
    size: int
    created: int


class StepReport(Protocol):
    """Where an engine says how far it is."""

    def step(self, title: str) -> AbstractContextManager[None]:
        """Bracket a step."""
        ...

    def line(self, text: str) -> None:
        """One line of output of the current step."""
        ...


class StepFailed(CellblockError):
    """A step of an image's recipe failed; names image, step and command, and shows the last lines."""

    def __init__(
        self, recipe: Recipe, title: str, finished: Finished, *, where: str = "", hint: str = ""
    ) -> None:
        # A command can be a whole script: its beginning tells which one it is.
        command = f"\n  command: {beginning(shlex.join(finished.argv))}"
        after = f"{command}\n  in {where}" if where else command
        self._say(recipe.image, title, finished, after, recipe.reproduce, hint)

    @classmethod
    def of(
        cls, image: str, title: str, finished: Finished, reproduce: str, *, where: str = "", hint: str = ""
    ) -> StepFailed:
        """The same, of a step that belongs to no recipe; `reproduce` is the command that repeats it.

        `where` is the line of a definition that failed. The command is left out: it is how Cellblock enters
        a root, which nobody wrote and nobody can repeat.
        """
        failed = cls.__new__(cls)
        failed._say(image, title, finished, f"\n  in {where}" if where else "", reproduce, hint)
        return failed

    def _say(self, image: str, title: str, finished: Finished, after: str, reproduce: str, hint: str) -> None:
        lines = "".join(f"\n  | {line}" for line in finished.tail)
        again = f"repeat it with: {reproduce}"
        CellblockError.__init__(
            self,
            f"image {image}: step '{title}' failed with status {finished.status}{lines}{after}",
            hint=f"{hint}; then {again}" if hint else again,
        )


def beginning(text: str) -> str:
    """What shows a person which text it is: its first 300 characters."""
    return text if len(text) <= 300 else text[:300] + " ..."
