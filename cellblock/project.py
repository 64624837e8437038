# SPDX-License-Identifier: Apache-2.0
"""Gives the definitions of a project, its variants and images, each read once when it is first asked for.

definition.py, variants.py and overrides.py read them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cellblock import paths
from cellblock.definition import Image, default_images
from cellblock.errors import UsageError
from cellblock.graph import build_order
from cellblock.overrides import check_sites, images_options, load_with_sites, locks_folder
from cellblock.variants import Variant, choose_variant, load_variants


@dataclass(frozen=True)
class Project:
    """What the folder `definitions` declares: variants.yaml, and one folder an image.

    `sites` are folders of a site's own definitions, laid over those (cellblock.overrides).
    Whatever is asked for raises DefinitionError when what it reads is wrong.
    """

    definitions: Path = field(default_factory=lambda: paths.PROJECT / "images")

    sites: Sequence[Path] = ()

    @cached_property
    def folders(self) -> tuple[Path, ...]:
        """The folders of `sites`, absolute. Raises UsageError for one that is missing or empty."""
        return check_sites(self.definitions, self.sites)

    @property
    def locks(self) -> Path:
        """The folder of this project's locks."""
        return locks_folder(self.folders)

    @property
    def options(self) -> str:
        """The options that name the site's folders again, each after a blank."""
        return images_options(self.folders)

    @cached_property
    def variants(self) -> Mapping[str, Variant]:
        """All variants by name."""
        own = [path for folder in self.folders if os.path.lexists(path := folder / "variants.yaml")]
        return load_variants(self.definitions / "variants.yaml", *own)

    @cached_property
    def images(self) -> dict[str, Image]:
        """All images by name."""
        return load_with_sites(self.definitions, self.folders)

    @cached_property
    def jails(self) -> tuple[str, ...]:
        """The names of the images that are jails: they, or what they are made from, have JAIL_RELEASE."""
        return tuple(sorted(name for name, image in self.images.items() if self._is_jail(image)))

    def _is_jail(self, image: Image) -> bool:
        file = image.files / paths.JAIL_RELEASE
        if file.is_file() or file.with_name(f"{file.name}.j2").is_file():
            return True
        return image.fields.parent in self.images and self._is_jail(self.images[image.fields.parent])

    def refuse_other_than_jail(self, name: str, place: str = "") -> None:
        """Raise UsageError when the image `name` is no jail; `place` is where a user named it."""
        if name not in self.jails:
            raise UsageError(
                f"{place + ': ' if place else ''}image {name} is no jail: it has no /{paths.JAIL_RELEASE}, "
                "and neither has an image that it is made from",
                hint=f"name an image that is one: {', '.join(self.jails)}; or make it `from: jail`",
            )

    def variant(self, name: str | None) -> Variant:
        """The variant `name`; None: the newest stable one of the host's family. Raises UsageError."""
        return choose_variant(dict(self.variants), name)

    def in_order(self, names: Sequence[str] = ()) -> list[Image]:
        """The images `names` (none: those that are built by default) and what they need, in build order.

        Raises UsageError for an image that is not declared.
        """
        return build_order(self.images, names or default_images(self.images))

    def all_in_order(self) -> list[Image]:
        """All images, in build order."""
        return build_order(self.images, self.images)
