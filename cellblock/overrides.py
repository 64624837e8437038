# SPDX-License-Identifier: Apache-2.0
"""Reads a site's own definitions: folders that `--images DIR` names, laid over those of this tree.

    DIR/NAME/image.yaml   an image of the site's, or one in place of the image NAME here
    DIR/variants.yaml     distributions, CUDA and variants, added or in place of those here
    DIR/policy.yaml       what `audit` accepts, in place of the file here
    DIR/locks/            the locks of builds with this folder

A later folder goes before an earlier one. An override that is made `from` its own name stands on the image
that it takes the place of, which is then called NAME.overridden. docs/decisions/site-definitions.md says why.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cellblock import paths
from cellblock.definition import Image, check_images, load_images, read_images
from cellblock.errors import DefinitionError, UsageError
from cellblock.graph import build_order
from cellblock.yaml_source import Location

LOCKS = "locks"
"""Folder of locks below a site's folder; no image can have that name."""

_OVERRIDDEN = ".overridden"
# Part of a repository's name in a registry, of a host name, and a word in cluster files.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")
_ROLES = "usr/lib/cellblock"
_INIT = "cellblock-init"


def locks_folder(sites: Sequence[Path]) -> Path:
    """Where the locks of builds with the folders `sites` are: beside the last one's definitions."""
    return (sites[-1] if sites else paths.PROJECT) / LOCKS


def images_options(sites: Sequence[Path]) -> str:
    """The options that name `sites` again, each after a blank."""
    return "".join(f" --images {shlex.quote(str(site))}" for site in sites)


def check_sites(own: Path, sites: Sequence[Path]) -> tuple[Path, ...]:
    """The absolute folders of `sites`, links followed; `own` are the definitions of this tree.

    Raises UsageError, naming `--images`, for one that is missing, empty, given twice, or part of `own`.
    """
    found: list[Path] = []
    for site in sites:
        said = f"--images {site}"
        try:
            folder = site.resolve()
        except (OSError, RuntimeError) as error:  # a link that leads back to itself
            raise UsageError(f"{said}: cannot be followed: {error}", hint="correct the link") from error
        if not folder.is_dir():
            what = "this is no folder" if folder.exists() else "there is no such folder"
            raise UsageError(
                f"{said}: {what}", hint="name the folder that holds NAME/image.yaml for each image of yours"
            )
        if folder.is_relative_to(own.resolve()):
            raise UsageError(
                f"{said}: {folder} is part of this tree's own {own}, which is read anyway",
                hint="move the site's images to a folder outside this tree, or leave the option out",
            )
        if folder in found:
            raise UsageError(f"{said}: {folder} is named twice", hint="name each folder once")
        try:
            declares = any(map(_declares, folder.iterdir())) or os.path.lexists(folder / "variants.yaml")
        except OSError as error:
            raise UsageError(
                f"{said}: cannot be read: {error.strerror}: {error.filename}",
                hint="correct its mode, or run as root",
            ) from error
        if not declares:
            inner = next(folder.glob("*/*/image.yaml"), None)
            near = f"--images {folder.parent}" if (folder / "image.yaml").exists() else ""
            near = near or (f"--images {inner.parent.parent}" if inner else "")
            raise UsageError(
                f"{said}: {folder} holds neither NAME/image.yaml nor variants.yaml",
                hint=f"did you mean {near}?" if near else f"write {folder}/NAME/image.yaml",
            )
        found.append(folder)
    return tuple(found)


def load_with_sites(own: Path, sites: Sequence[Path]) -> dict[str, Image]:
    """All images of `own`, with those of `sites` over them, by name.

    Raises DefinitionError when one is wrong, needs an image that does not exist, or is an override that lacks
    what others need of it.
    """
    if not sites:
        return load_images(own)
    images = read_images(own)
    replaced: list[tuple[Image, Image]] = []
    for site in sites:
        for name, image in _images_of(site, images).items():
            below = images.get(name)
            if below is None:
                _refuse_itself(image)
                images[name] = image
                continue
            override = replace(image, overrides=(below.source.path, *below.overrides))
            if name in image.needs():
                hidden = f"{name}{_OVERRIDDEN}"
                while hidden in images:
                    hidden += _OVERRIDDEN
                fields = below.fields.model_copy(update={"default": False})
                images[hidden] = replace(below, name=hidden, fields=fields, is_overridden=True)
                override = _made_from(override, below, hidden)
            elif "default" not in image.source.data:
                fields = image.fields.model_copy(update={"default": below.fields.default})
                override = replace(override, fields=fields)
            images[name] = override
            replaced.append((override, below))
    images = dict(sorted(images.items()))
    check_images(images)
    for image in images.values():
        if image.site:
            _check_parent(image, images)
            _check_sources(image)
            _check_role(image, images)
    for override, below in replaced:
        if images[override.name] is override:
            _check_override(override, below, images)
    return images


def shaped_by(name: str, images: Mapping[str, Image]) -> tuple[str, ...]:
    """The site's folders that declare the image `name`, or one that it needs."""
    return tuple(sorted({str(each.site) for each in build_order(images, [name]) if each.site}))


def overrides_text(images: Mapping[str, Image]) -> Iterator[str]:
    """A sentence for each image that takes the place of another."""
    for image in images.values():
        if image.overrides:
            yield f"{image.name} is {image.source.path}, in place of {', '.join(map(str, image.overrides))}"


def _declares(folder: Path) -> bool:
    """Whether a folder is meant for an image: one whose link leads nowhere is an error of its own."""
    path = folder / "image.yaml"
    return path.exists() or path.is_symlink() or (folder.is_symlink() and not folder.exists())


def _images_of(site: Path, known: Mapping[str, Image]) -> dict[str, Image]:
    """The images that a site's folder declares.

    Raises DefinitionError for one that is wrong, and for a folder that lacks its image.yaml.
    """
    for folder in sorted(site.iterdir()):
        path = folder / "image.yaml"
        if folder.is_symlink() and not folder.exists():
            raise DefinitionError(
                f"{folder}: this link leads to {folder.readlink()}, which is not there",
                hint="correct the link, or remove it",
            )
        if path.is_symlink() and not path.exists():
            raise DefinitionError(
                f"{path}: this link leads to {path.readlink()}, which is not there",
                hint="correct the link, or remove it",
            )
        if path.exists() and (not _NAME.fullmatch(folder.name) or folder.name == LOCKS):
            raise DefinitionError(
                f"{path}:1: '{folder.name}' cannot name an image: lower-case letters, digits "
                f"and '-', a letter first, at most 30, and not '{LOCKS}'",
                hint=f"rename {folder}",
            )
        if folder.is_dir() and not path.exists() and (folder.name in known or (folder / "files").is_dir()):
            advice = f"write {path}"
            if folder.name in known:
                advice += f" with `from: {folder.name}` to add to the image here"
            raise DefinitionError(f"{folder}: there is no image.yaml in this folder", hint=advice)
    return read_images(site, site)


def _refuse_itself(image: Image) -> None:
    if image.name in image.needs():
        raise _fault(
            image,
            image.needs()[image.name],
            f"{image.name} needs itself, and there is no image of that name here for it to override",
            f"correct {image.source.path}; `build.py targets` lists the images that can be overridden",
        )


def _made_from(override: Image, below: Image, hidden: str) -> Image:
    """`override` with `hidden` wherever it names itself; made from it, it is started as that is."""
    fields = override.fields
    update: dict[str, Any] = {}
    if fields.parent == override.name:
        update["parent"] = hidden
        data = override.source.data
        update |= {
            key: getattr(below.fields, key)
            for key in ("entrypoint", "command", "default")
            # A command alone belongs to the entrypoint that is there; an entrypoint has a command of its own.
            if key not in data and not (key == "command" and "entrypoint" in data)
        }
    update["artifacts"] = [
        each.model_copy(update={"image": hidden}) if each.image == override.name else each
        for each in fields.artifacts
    ]
    if fields.build and fields.build.toolchain == override.name:
        update["build"] = fields.build.model_copy(update={"toolchain": hidden})
    return replace(override, fields=fields.model_copy(update=update))


# -- what others need ----------------------------------------------------------------------------------


def _check_parent(image: Image, images: Mapping[str, Image]) -> None:
    for each in images.values():
        if each.fields.parent == image.name and image.fields.build:
            raise _fault(
                image,
                ("build",),
                f"{image.name} would hold only what is compiled, and image {each.name} is made from it "
                f"({each.source.path}:{each.source.line(('from',))})",
                "compile in an image of another name, and take its files by `artifacts`",
            )


def _check_sources(image: Image) -> None:
    for name in image.fields.build.sources if image.fields.build else ():
        if not image.source_folder(name).is_dir():
            raise _fault(
                image,
                ("build", "sources", name),
                f"there is no folder {name} in {image.site}, and none in {paths.PROJECT}",
                "correct `sources`: paths begin in the folder that --images names",
            )


def _check_role(image: Image, images: Mapping[str, Image]) -> None:
    """`cellblock-init ROLE` runs a file of that role, which the image or one that it stands on must have."""
    words = image.fields.entrypoint
    if _INIT not in words[:-1]:
        return
    role = words[words.index(_INIT) + 1]
    for path in (f"usr/bin/{_INIT}", f"{_ROLES}/role-{role}"):
        chain = _chain(image, images)
        if not any((each.files / each_path).exists() for each in chain for each_path in (path, f"{path}.j2")):
            owner = images.get(role)
            advice = f"make it `from: {role}`" if owner is not None else f"add files/{path}"
            raise _fault(
                image,
                ("entrypoint",),
                f"{_INIT} {role} runs /{path}, which neither {image.name} has nor an image that it stands on",
                f"{advice}, or copy the file from images/",
            )


def _check_override(override: Image, below: Image, images: Mapping[str, Image]) -> None:
    keep = f"`from: {override.name}` keeps what the overridden image has"
    path, place = override.source.path, f"{below.source.path}:{below.source.line(('users',))}"
    if below.fields.entrypoint and not (override.fields.entrypoint or override.fields.command):
        raise _fault(
            override,
            ("entrypoint",),
            f"missing; {override.name} is started, as {below.source.path} says: "
            f"[{', '.join(below.fields.entrypoint)}]",
            f"add it to {path}; or {keep}",
        )
    users = [user for each in _chain(override, images) for user in each.fields.users]
    for user in below.fields.users:
        if user not in users:
            raise _fault(
                override,
                ("users",),
                f"{override.name} lacks the user {user.name} (uid {user.uid}, gid {user.gid}) of {place}, "
                "whom images that share a cluster's files need",
                f"declare that user in {path}; or {keep}",
            )


def _fault(image: Image, at: Location, text: str, hint: str) -> DefinitionError:
    key = ".".join(map(str, at))
    return DefinitionError(f"{image.source.path}:{image.source.line(at)}: {key}: {text}", hint=hint)


def _chain(image: Image, images: Mapping[str, Image]) -> list[Image]:
    """The image, and those that it is made from; a circle is found by build_order."""
    chain: list[Image] = []
    below: Image | None = image
    while below is not None and below not in chain:
        chain.append(below)
        below = images.get(below.fields.parent or "")
    return chain
