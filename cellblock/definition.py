# SPDX-License-Identifier: Apache-2.0
"""Reads definitions of images: images/NAME/image.yaml, and the files beside it."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from cellblock import paths
from cellblock.errors import DefinitionError
from cellblock.yaml_source import Location, YamlSource, nearest, read_yaml, validate


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class User(_Strict):
    """A system user with fixed ids, made before packages are installed."""

    name: str = Field(description="the user's name, and the group's of the same number as `gid`")
    uid: int = Field(ge=0, lt=2**32 - 1, description="number of the user, the same in all images")
    gid: int = Field(ge=0, lt=2**32 - 1, description="number of the primary group")
    home: str = Field(default="/nonexistent", description="home directory; it is not made")
    shell: str = Field(default="/usr/sbin/nologin", description="login shell")


class Artifacts(_Strict):
    """Files copied out of another image: path there -> path here (a final `/` keeps the name)."""

    image: str = Field(alias="from", description="name of the image that has the files; it is built first")
    files: dict[str, str] = Field(
        description="path in that image -> path in this one, or folder with a final `/`"
    )


class Compile(_Strict):
    """A throwaway container in which sources become the image's only content, `output`."""

    toolchain: str = Field(alias="in", description="name of the image that the lines run in")
    sources: dict[str, str] = Field(description="folder of the project -> path in the container")
    run: list[str] = Field(min_length=1, description="shell lines, run with sh -euc")
    output: str = Field(description="absolute path in the container: the folder that becomes the image")
    objects: str | None = Field(
        default=None,
        description="absolute path in the container where `run` leaves `FOLDER/x.o` of `FOLDER/x.c`: "
        "objects of unchanged sources are there before it runs",
    )

    @field_validator("output", "objects")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        if value is not None and (not value.startswith("/") or value == "/"):
            raise ValueError("must be an absolute path below /")
        return value


class ImageFields(_Strict):
    """The keys of an image.yaml. Strings of packages, artifacts, run, env and entrypoint are Jinja.

    The table in docs/definitions.md says what each means; the reference takes it from there.
    """

    summary: str
    parent: str | None = Field(default=None, alias="from")
    packages: list[str] = []
    manuals: bool = False
    users: list[User] = []
    per_machine: list[str] = []
    artifacts: list[Artifacts] = []
    run: list[str] = []
    env: dict[str, str] = {}
    entrypoint: list[str] = []
    command: list[str] = []
    stop_signal: str | None = None
    build: Compile | None = None
    default: bool = True
    refused: str | None = None

    @field_validator("artifacts", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @field_validator("per_machine")
    @classmethod
    def _inside(cls, value: list[str]) -> list[str]:
        for path in value:
            if not path.startswith("/") or path == "/" or ".." in path.split("/"):
                raise ValueError(f"'{path}' must be an absolute path below /")
        return value

    @field_validator("env")
    @classmethod
    def _names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name):
                raise ValueError(f"'{name}' cannot name a variable: letters, digits and _, no blank and no =")
        return value

    @field_validator("stop_signal")
    @classmethod
    def _signal(cls, value: str | None) -> str | None:
        # image-spec 1.1, config.md: a name with SIG, or a number.
        known = {each.name for each in signal.Signals} | {"SIGRTMIN", "SIGRTMAX"}
        numbered = value and re.fullmatch(r"SIGRTM(IN\+|AX-)([1-9]|[12]\d|30)", value)
        if value is None or numbered or value in known or (value.isdigit() and 1 <= int(value) <= 64):
            return value
        raise ValueError(f"there is no signal '{value}'; {nearest(value, known)}")

    @model_validator(mode="after")
    def _compiled_images_hold_only_their_output(self) -> ImageFields:
        if self.build and (self.parent or self.packages or self.users or self.artifacts or self.run):
            raise ValueError("'build' excludes 'from', 'packages', 'users', 'artifacts' and 'run'")
        return self


@dataclass(frozen=True)
class Image:
    """A declared image: its name (the folder's), its keys, and where they stand.

    `site` is the folder of `--images` that declares it; None: this tree. `overrides` are the definitions that
    it takes the place of, the last one first. `is_overridden`: it has another name than its folder, because
    an override is made from it (cellblock.overrides).
    """

    name: str
    fields: ImageFields
    source: YamlSource
    folder: Path
    site: Path | None = None
    overrides: tuple[Path, ...] = ()
    is_overridden: bool = False

    @property
    def files(self) -> Path:
        """Folder laid over the root; it may not exist."""
        return self.folder / "files"

    @property
    def key_name(self) -> str:
        """What keys call its definition: the same wherever the tree or the site's folder lies."""
        return f"{'site' if self.site else 'images'}/{self.folder.name}"

    def source_folder(self, name: str) -> Path:
        """The folder of `build.sources` with that name: a site's own, or that of this tree."""
        if self.site and (self.site / name).is_dir():
            return self.site / name
        return paths.PROJECT / name

    def needs(self) -> dict[str, Location]:
        """Names of the images that must be built first, with the key that asks for each."""
        needs: dict[str, Location] = {}
        if self.fields.parent:
            needs[self.fields.parent] = ("from",)
        if self.fields.build:
            needs.setdefault(self.fields.build.toolchain, ("build", "in"))
        for index, artifacts in enumerate(self.fields.artifacts):
            one = isinstance(self.source.data.get("artifacts"), dict)
            at: Location = ("artifacts", "from") if one else ("artifacts", index, "from")
            needs.setdefault(artifacts.image, at)
        return needs


def _refuse_shared_ids(images: Mapping[str, Image]) -> None:
    """Raise DefinitionError for a user whose name or ids another has, in the image or one it is made from.

    To the kernel two users of one uid are one: whoever is the one has the other's files and processes.
    """
    for image in images.values():
        known: list[tuple[User, Image]] = []
        below: Image | None = image
        chain = []
        while below is not None and below not in chain:  # a circle is found by build_order
            chain.append(below)
            below = images.get(below.fields.parent or "")
        for each in reversed(chain):
            for index, user in enumerate(each.fields.users):
                for other, where in known:
                    shared = _shared(user, other)
                    if shared:
                        line = each.source.line(("users", index))
                        raise DefinitionError(
                            f"{each.source.path}:{line}: users: {user.name} has {shared} of {other.name} "
                            f"({where.source.path}:{where.source.line(('users',))})",
                            hint="give each user a name, a uid and a gid of its own",
                        )
                known.append((user, each))


def _shared(user: User, other: User) -> str:
    if user == other:
        return ""
    ids = (("name", "the name"), ("uid", f"uid {user.uid},"), ("gid", f"gid {user.gid},"))
    return next((said for name, said in ids if getattr(user, name) == getattr(other, name)), "")


def default_images(images: Mapping[str, Image]) -> list[str]:
    """Names of the images that are built when none is named."""
    return [name for name, image in images.items() if image.fields.default]


def load_images(folder: Path) -> dict[str, Image]:
    """All images declared below `folder`, by name.

    Raises DefinitionError when one is wrong or needs an image that does not exist.
    """
    images = read_images(folder)
    if not images:
        raise DefinitionError(
            f"{folder}: no image.yaml below it", hint="run build.py from a whole checkout of Cellblock"
        )
    check_images(images)
    return images


def read_images(folder: Path, site: Path | None = None) -> dict[str, Image]:
    """The images that are declared below `folder`, each alone. Raises DefinitionError when one is wrong."""
    images: dict[str, Image] = {}
    for path in sorted(folder.glob("*/image.yaml")):
        source = read_yaml(path)
        if not isinstance(source.data, dict):
            raise DefinitionError(f"{path}:1: must be a mapping of keys", hint="see docs/definitions.md")
        fields = validate(source, ImageFields)
        images[path.parent.name] = Image(path.parent.name, fields, source, path.parent, site)
    return images


def check_images(images: Mapping[str, Image]) -> None:
    """Raise DefinitionError for a need that no image is, and for users that share a name or an id."""
    for image in images.values():
        for need, at in image.needs().items():
            if need not in images:
                key = ".".join(str(part) for part in at)
                near = nearest(need, images)
                beside = image.folder.parent / need
                if need and beside.is_dir():
                    near = f"{beside} has no image.yaml"
                raise DefinitionError(
                    f"{image.source.path}:{image.source.line(at)}: {key}: there is no image '{need}'; {near}",
                    hint=f"correct {image.source.path}",
                )
    _refuse_shared_ids(images)
