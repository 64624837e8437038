# SPDX-License-Identifier: Apache-2.0
"""Lists what differs between two images: packages, files, privileges, configuration, bytes of layers.

`build.py diff` prints it. Times of files are not compared, nor how files are divided into layers: compare.py
does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cellblock.debian.package_database import STATUS, is_database
from cellblock.inspect.entry_diff import changes, privileges
from cellblock.inspect.owners import installed, merged_path, owners
from cellblock.oci.contents import Contents, ContentsReader
from cellblock.oci.layer_tar import Entry
from cellblock.oci.layout import Layout, StoredImage
from cellblock.oci.model import Configuration

Sign = Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class ValueChange:
    """A package's version or a setting, by name; None where there is none."""

    name: str
    old: str | None
    new: str | None

    @property
    def sign(self) -> Sign:
        """Whether it came, went or changed."""
        return "added" if self.old is None else "removed" if self.new is None else "changed"


@dataclass(frozen=True)
class FileChange:
    """A path (relative to the root) with what it was and is; `what` says how they differ.

    `package` is the one that owns the file, empty when none does.
    """

    path: str
    package: str
    old: Entry | None
    new: Entry | None
    what: tuple[str, ...] = ()

    @property
    def sign(self) -> Sign:
        """Whether it came, went or changed."""
        return "added" if self.old is None else "removed" if self.new is None else "changed"

    @property
    def privileges(self) -> tuple[str, str]:
        """setuid, setgid and capabilities before and after; see `entries.privileges`."""
        return privileges(self.old), privileges(self.new)


@dataclass(frozen=True)
class LayerBytes:
    """Bytes to pull and number of layers: those of both images, and those that only one has."""

    shared: int
    shared_layers: int
    old: int
    old_layers: int
    new: int
    new_layers: int


@dataclass(frozen=True)
class ImageDiff:
    """How image `new` differs from image `old` (names for a person)."""

    old: str
    new: str
    old_digest: str
    new_digest: str
    packages: tuple[ValueChange, ...]
    files: tuple[FileChange, ...]
    settings: tuple[ValueChange, ...]
    layers: LayerBytes

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs that matters to a program that runs in it."""
        return not (self.packages or self.files or self.settings)

    @property
    def privileged(self) -> tuple[FileChange, ...]:
        """Files whose setuid or setgid bits, owner under them, or capabilities differ."""
        return tuple(change for change in self.files if change.privileges[0] != change.privileges[1])


@dataclass(frozen=True)
class NamedImage:
    """An image, the layout it is in, and what to call it."""

    name: str
    layout: Layout
    image: StoredImage


class Differ:
    """Compares images; each layer is read once, however many images hold it."""

    def __init__(self) -> None:
        self._readers: dict[str, ContentsReader] = {}

    def diff(self, old: NamedImage, new: NamedImage) -> ImageDiff:
        """How `new` differs from `old`. Raises MalformedImage when a layer is absent or damaged."""
        packages: tuple[ValueChange, ...] = ()
        files: tuple[FileChange, ...] = ()
        if [each.digest for each in old.image.manifest.layers] != [
            each.digest for each in new.image.manifest.layers
        ]:
            before, after = self._contents(old), self._contents(new)
            packages = tuple(_values(_packages(before), _packages(after)))
            files = tuple(_files(before, after))
        settings = tuple(_values(_settings(old.image.configuration), _settings(new.image.configuration)))
        return ImageDiff(
            old.name,
            new.name,
            old.image.digest,
            new.image.digest,
            packages,
            files,
            settings,
            _layers(old.image, new.image),
        )

    def _contents(self, named: NamedImage) -> Contents:
        folder = str(named.layout.folder.resolve())
        if folder not in self._readers:
            self._readers[folder] = ContentsReader(named.layout, keep=is_database, digests=True)
        return self._readers[folder].image(named.image)


def _packages(contents: Contents) -> dict[str, str]:
    return installed(contents.read(STATUS) or b"")


def _files(old: Contents, new: Contents) -> Iterator[FileChange]:
    old_owner, new_owner = owners(old.layers), owners(new.layers)
    for path in sorted({*old.entries, *new.entries}):
        before, after = old.entries.get(path), new.entries.get(path)
        what = changes(before, after) if before and after else ()
        if before and after and not what:
            continue
        name = merged_path(path)
        package = new_owner.get(name, "") if after else old_owner.get(name, "")
        yield FileChange(path, package, before, after, what)


def _values(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[ValueChange]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield ValueChange(name, old.get(name), new.get(name))


def _settings(configuration: Configuration) -> dict[str, str]:
    """The configuration in flat names: `Env PATH`, `Labels org.example`, `Entrypoint`."""
    platform = configuration.platform
    found = {"platform": "/".join(filter(None, (platform.os, platform.architecture, platform.variant)))}
    for name, value in configuration.settings.items():
        if name == "Env":
            pairs: Mapping[str, Any] = dict(each.partition("=")[::2] for each in value or ())
            found.update({f"Env {key}": text for key, text in pairs.items()})
        elif isinstance(value, dict):
            found.update({f"{name} {key}": _text(each) for key, each in value.items()})
        elif value not in (None, "", []):
            found[name] = _text(value)
    return found


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return value if isinstance(value, str) else str(value)


def _layers(old: StoredImage, new: StoredImage) -> LayerBytes:
    before = {layer.digest: layer.size for layer in old.manifest.layers}
    after = {layer.digest: layer.size for layer in new.manifest.layers}
    shared = before.keys() & after.keys()
    gone, came = before.keys() - shared, after.keys() - shared
    return LayerBytes(
        sum(before[digest] for digest in shared),
        len(shared),
        sum(before[digest] for digest in gone),
        len(gone),
        sum(after[digest] for digest in came),
        len(came),
    )
