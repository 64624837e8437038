# SPDX-License-Identifier: Apache-2.0
"""`build.py targets`: lists images and variants.

Before Cellblock is installed, launcher/first_answers.py prints the same list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.cli.options import JsonOption, SitesOption
from cellblock.launcher.first_answers import targets_text

if TYPE_CHECKING:
    from cellblock.definition import Image


def targets(sites: SitesOption = None, as_json: JsonOption = False) -> None:
    """List images and variants, and say what each is."""

    from cellblock.project import Project

    project = Project(sites=tuple(sites or ()))
    images, variants = project.images, project.variants
    default = project.variant(None).name
    summaries = {
        name: f"{image.fields.summary}{_origin(image)}"
        for name, image in images.items()
        if not image.is_overridden
    }
    said = {name: variant.summary for name, variant in variants.items()}
    print(targets_text(summaries, said, default, as_json=as_json), end="")


def _origin(image: Image) -> str:
    """Where a site's image is declared."""
    if image.site is None:
        return ""
    place = f", in place of {image.overrides[0]}" if image.overrides else ""
    return f"  [{image.source.path}{place}]"
