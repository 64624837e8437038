# SPDX-License-Identifier: Apache-2.0
"""Defines the request for a build, and its result, for run.py, the command line and the local cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellblock import paths
from cellblock.engine.recipe import BuiltImage
from cellblock.oci.layer import Compression
from cellblock.overrides import images_options
from cellblock.variants import Variant


@dataclass(frozen=True)
class BuildRequest:
    """What to build: images by name (none: all) of a variant (none: the newest stable of the host).

    `locked`: exactly the packages of the project's lock, or fail; `update`: ask the archives anew which
    packages there are; `load`: load the images, all or these, into the storage of buildah and podman then;
    `cache`: a repository of a registry (HOST/PATH) where layers of others are found and own ones are left.
    """

    images: tuple[str, ...] = ()
    variant: str | None = None
    mirrors: tuple[str, ...] = ()
    keep_failed: bool = False
    engine: str = "native"
    definitions: Path = field(default_factory=lambda: paths.PROJECT / "images")
    locks: Path | None = None
    """Folder of the locks; without: the project's, or the site's."""
    locked: bool = False
    update: bool = False
    load: bool | Collection[str] = False
    compression: Compression = field(default_factory=Compression)
    cache: str | None = None
    go_on: str = ""
    """What to do after Ctrl-C, when it was another command than `build` that asked."""
    target: str = "build"
    """The target that repeats this."""
    sites: tuple[Path, ...] = ()
    """Folders of a site's own definitions (`--images`)."""

    def command(self, variant: str, *images: str) -> str:
        """The command line by which a person repeats this for `images`."""
        options: Sequence[str] = [f"--mirror '{mirror}'" for mirror in self.mirrors]
        if self.engine != "native":
            options = [*options, f"--engine {self.engine}"]
        if self.cache:
            options = [*options, f"--cache {self.cache}"]
        if self.locked:
            options = [*options, "--locked"]
        if self.sites:
            options = [*options, images_options(self.sites).strip()]
        return " ".join([f"python3 build.py {self.target}", *images, f"--variant {variant}", *options])


@dataclass(frozen=True)
class BuildResult:
    """What a build gave: images by name, which of them were built now, and the times in seconds."""

    variant: Variant
    images: Mapping[str, BuiltImage]
    built: tuple[str, ...]
    seconds: float
    download_s: float
