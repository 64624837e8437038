# SPDX-License-Identifier: Apache-2.0
"""Reads and writes locks/VARIANT.lock.yaml, the file of a lock.

Each package is one line, in order of names, so that version control shows an upgrade as the lines that
changed. A line's value is JSON, which is YAML too, and read fifty times faster: even a build with nothing to
do reads the lock. Each line has a check and each section a digest: a lock that somebody edited or merged is
refused with the line that is wrong. That guards against mistakes; against malice there is the review of
commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cellblock.cache_key import digest_of
from cellblock.errors import DefinitionError
from cellblock.files import durable
from cellblock.lock.archives import parse_line
from cellblock.lock.model import FORMAT, Lock, LockedImage, LockedPackage
from cellblock.variants import Variant
from cellblock.yaml_source import read_yaml, validate

_HEADER = """\
# What the images of a variant hold, exactly. Written by `build.py lock`: run that, do not edit.
"""
_SECTIONS = ("archives", "tarballs", "images", "packages")
# Enough digits to notice a change; they are no protection against somebody who wants to deceive.
_CHECK_DIGITS = 8
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PACKAGES, _DIGESTS = "\npackages:\n", "\ndigests:\n"
_SHA256 = Field(pattern=r"^[0-9a-f]{64}$")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ArchiveFields(_Strict):
    """A line of sources.list(5) and further mirrors of the same archive."""

    line: str
    mirrors: list[str] = []


class ImageFields(_Strict):
    """An image: what it stands on and what its definition asks for."""

    parent: str | None = Field(default=None, alias="from")
    packages: list[str]


class PackageFields(_Strict):
    """A package; see LockedPackage. `check` is over the name and the other fields."""

    version: str
    architecture: str
    sha256: str = _SHA256
    size: int = Field(ge=0)
    installed_size: int = Field(ge=0)
    archive: int = Field(ge=0)
    filename: str
    origin: str
    security: bool = False
    images: list[str]
    depends: list[str] = []
    check: str


class LockFile(_Strict):
    """The keys of a lock."""

    format: int
    variant: str
    architecture: str
    date: str
    snapshot: str | None = None
    archives: list[ArchiveFields]
    tarballs: dict[str, str]
    images: dict[str, ImageFields]
    packages: dict[str, PackageFields]
    digests: dict[str, str]


def lock_path(folder: Path, variant: Variant) -> Path:
    """Where the lock of a variant is; each architecture but amd64 has one under a name of its own."""
    arch = "" if variant.arch.debian == "amd64" else f"-{variant.arch.debian}"
    return folder / f"{variant.name}{arch}.lock.yaml"


def write_lock(lock: Lock, path: Path) -> None:
    """Write `lock` to `path`, which always holds a whole lock, the earlier one or this."""
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.replace(path, _text(lock))


def _text(lock: Lock) -> str:
    data = _data(lock)
    lines = [f"{name}: {_json(value)}" for name, value in data.items() if name not in _SECTIONS]
    for section in _SECTIONS:
        value = data[section]
        if value and isinstance(value, list):
            lines += [f"{section}:", *(f"- {_json(item)}" for item in value)]
        elif value:
            lines += [f"{section}:", *(f"  {_json(name)}: {_json(item)}" for name, item in value.items())]
        else:
            lines.append(f"{section}: {_json(value)}")
    lines += ["digests:", *(f"  {name}: {_json(digest)}" for name, digest in _digests(data).items())]
    return _HEADER + "\n".join(lines) + "\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _data(lock: Lock) -> dict[str, Any]:
    """A lock as plain data, in the order in which it is written."""
    data: dict[str, Any] = {
        "format": lock.format,
        "variant": lock.variant,
        "architecture": lock.architecture,
        "date": lock.date,
    }
    if lock.snapshot:
        data["snapshot"] = lock.snapshot
    data["archives"] = [
        {"line": archive.line, **({"mirrors": list(archive.uris[1:])} if archive.uris[1:] else {})}
        for archive in lock.archives
    ]
    data["tarballs"] = dict(sorted(lock.tarballs.items()))
    data["images"] = {
        image.name: {**({"from": image.parent} if image.parent else {}), "packages": list(image.requested)}
        for image in lock.images.values()
    }
    data["packages"] = {name: _package_data(lock.packages[name]) for name in sorted(lock.packages)}
    return data


def _package_data(package: LockedPackage) -> dict[str, Any]:
    names = ("version", "architecture", "sha256", "size", "installed_size", "archive", "filename", "origin")
    data: dict[str, Any] = {name: getattr(package, name) for name in names}
    if package.security:
        data["security"] = True
    data["images"] = list(package.images)
    data["depends"] = list(package.depends)
    data["check"] = _check(package.name, data)
    return data


def _check(name: str, data: Mapping[str, Any]) -> str:
    return digest_of([name, {key: value for key, value in data.items() if key != "check"}])[:_CHECK_DIGITS]


def _digests(data: Mapping[str, Any]) -> dict[str, str]:
    """A digest for what stands before the sections, and one for each section."""
    head = {name: value for name, value in data.items() if name not in (*_SECTIONS, "digests")}
    digests = {"head": digest_of(head)}
    for section in _SECTIONS:
        value = data[section]
        if section == "packages":
            value = {name: package.get("check") for name, package in value.items()}
        digests[section] = digest_of(value)
    return digests


def read_lock(path: Path) -> Lock:
    """The lock at `path`.

    Raises DefinitionError naming file and line when there is none, when it is of another format, or
    when somebody has changed it since it was written.
    """
    hint = "`python3 build.py lock` makes one"
    try:
        data = _load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DefinitionError(f"{path}: there is no such lock", hint=hint) from error
    except (OSError, ValueError, yaml.YAMLError):
        # Slower: it names the line of what is no YAML, or stands twice.
        data = read_yaml(path).data
    if not isinstance(data, dict):
        raise DefinitionError(f"{path}:1: this is no lock", hint=_REPAIR)
    if data.get("format") != FORMAT:
        raise DefinitionError(
            f"{path}:{read_yaml(path).line(('format',))}: format: this is a lock of format "
            f"{data.get('format')!r}, and this Cellblock reads format {FORMAT}",
            hint="write it anew: `python3 build.py lock`",
        )
    # Earlier versions wrote this section, always empty.
    if data.get("base_images") == {}:
        del data["base_images"]
    try:
        fields = LockFile.model_validate(data)
    except ValidationError:
        source = read_yaml(path)
        try:
            fields = validate(source, LockFile)
        except DefinitionError as error:
            error.hint = f"{error.hint}, or write it anew: `python3 build.py lock`"
            raise
    faults = list(_faults(data, fields))
    if faults:
        source = read_yaml(path)
        lines = [f"{path}:{source.line(at)}: {'.'.join(at)}: {text}" for at, text in faults]
        raise DefinitionError("\n".join(lines), hint=_REPAIR)
    return _lock(fields)


_REPAIR = "take the edit back (version control has the lock as it was), or run `python3 build.py lock`"


def _load(text: str) -> Any:
    """The plain data of a lock as it was written. Raises ValueError or YAMLError for any other."""
    begin, end = text.index(_PACKAGES), text.index(_DIGESTS)
    lines = text[begin + len(_PACKAGES) : end].split("\n")
    packages = json.loads("{" + ",".join(lines) + "}")
    if len(packages) != len(lines):
        raise ValueError("a package stands twice")
    rest = yaml.load(text[:begin] + text[end:], Loader=_Loader)
    return {**rest, "packages": packages} if isinstance(rest, dict) else rest


def _faults(data: Mapping[str, Any], fields: LockFile) -> Iterator[tuple[tuple[str, ...], str]]:
    for name, package in data["packages"].items():
        if package["check"] != _check(name, package):
            yield ("packages", name), "was edited: its check does not fit what the line says"
        elif fields.packages[name].archive >= len(fields.archives):
            yield ("packages", name, "archive"), f"there is no archive {fields.packages[name].archive}"
        elif not set(package["images"]) <= fields.images.keys():
            yield ("packages", name, "images"), "names an image that the lock has not"
    for name, image in fields.images.items():
        if image.parent is not None and image.parent not in fields.images:
            yield ("images", name, "from"), f"there is no image '{image.parent}' in the lock"
    for section, digest in _digests(data).items():
        if fields.digests.get(section) != digest:
            if section == "head":
                yield (), "the lines before `archives` were edited: their digest does not fit"
            elif section == "packages":
                yield (section,), "a line was added, removed or renamed: the digest does not fit"
            else:
                yield (section,), "was edited: its digest does not fit"


def _lock(fields: LockFile) -> Lock:
    packages = {
        name: LockedPackage(
            name=name,
            images=tuple(package.images),
            depends=tuple(package.depends),
            **package.model_dump(exclude={"check", "images", "depends"}),
        )
        for name, package in fields.packages.items()
    }
    held: dict[str, list[str]] = {name: [] for name in fields.images}
    for package in packages.values():
        for image in package.images:
            held[image].append(package.name)
    return Lock(
        variant=fields.variant,
        architecture=fields.architecture,
        date=fields.date,
        archives=tuple(parse_line(item.line, item.mirrors) for item in fields.archives),
        images={
            name: LockedImage(name, image.parent, tuple(image.packages), tuple(sorted(held[name])))
            for name, image in fields.images.items()
        },
        packages=packages,
        snapshot=fields.snapshot,
        tarballs=fields.tarballs,
        format=fields.format,
    )
