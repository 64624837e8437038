"""`build.py targets`."""

from __future__ import annotations

from cellblock import paths
from cellblock.cli.options import JsonOption
from cellblock.launcher.first_answers import targets_text


def targets(as_json: JsonOption = False) -> None:
    """List images and variants, and say what each is."""
    from cellblock.definition import load_images
    from cellblock.variants import choose_variant, load_variants

    folder = paths.PROJECT / "images"
    images = load_images(folder)
    variants = load_variants(folder / "variants.yaml")
    default = choose_variant(variants, None).name
    summaries = {name: image.fields.summary for name, image in images.items()}
    said = {name: variant.summary for name, variant in variants.items()}
    print(targets_text(summaries, said, default, as_json=as_json), end="")
