# SPDX-License-Identifier: Apache-2.0
"""`build.py targets`: lists images and variants."""

from __future__ import annotations

from cellblock.cli.options import JsonOption
from cellblock.launcher.first_answers import targets_text


def targets(as_json: JsonOption = False) -> None:
    """List images and variants, and say what each is."""

    from cellblock.project import Project

    project = Project()
    images, variants = project.images, project.variants
    default = project.variant(None).name
    summaries = {name: image.fields.summary for name, image in images.items()}
    said = {name: variant.summary for name, variant in variants.items()}
    print(targets_text(summaries, said, default, as_json=as_json), end="")
