"""`build.py targets`."""

from __future__ import annotations

import json

from cellblock import paths
from cellblock.cli.options import JsonOption


def targets(as_json: JsonOption = False) -> None:
    """List images and variants, and say what each is."""
    from cellblock.definition import load_images
    from cellblock.variants import choose_variant, load_variants

    folder = paths.PROJECT / "images"
    images = load_images(folder)
    variants = load_variants(folder / "variants.yaml")
    default = choose_variant(variants, None).name
    if as_json:
        print(
            json.dumps(
                {
                    "images": {name: image.fields.summary for name, image in images.items()},
                    "variants": {name: variant.summary for name, variant in variants.items()},
                    "default_variant": default,
                }
            )
        )
        return
    width = max(map(len, [*images, *variants])) + 2
    print("Images (build.py build IMAGE...):")
    for name, image in images.items():
        print(f"  {name:{width}}{image.fields.summary}")
    print("\nVariants (--variant NAME):")
    for name, variant in variants.items():
        print(f"  {name:{width}}{variant.summary}{'  [default here]' if name == default else ''}")
