"""`build.py build`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cellblock.cli.options import JsonOption, LogOption, MirrorOption, VariantOption, image_names


def build(
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Images to build (default: all).", autocompletion=image_names),
    ] = None,
    variant: VariantOption = None,
    mirror: MirrorOption = None,
    engine: Annotated[
        str, typer.Option("--engine", help="Engine that builds and holds the images: buildah or docker.")
    ] = "buildah",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the container of a failed step.")] = False,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Build images, and what they need; those that nothing changed for are left alone."""
    from cellblock.build import BuildRequest, build_images
    from cellblock.cli.views import make_view
    from cellblock.events import Events

    events = Events()
    with make_view(log, events):
        request = BuildRequest(tuple(images or ()), variant, tuple(mirror or ()), keep, engine)
        result = build_images(request, events)
    if as_json:
        print(
            json.dumps(
                {
                    "variant": result.variant.name,
                    "images": {
                        name: {"reference": image.reference, "id": image.id, "bytes": image.size}
                        for name, image in result.images.items()
                    },
                    "built": result.built,
                    "seconds": round(result.seconds, 3),
                    "download_s": round(result.download_s, 3),
                }
            )
        )
    elif result.built:
        print(
            f"{result.variant.name}: built {len(result.built)} of {len(result.images)} images in "
            f"{result.seconds:.1f} s, of which downloading {result.download_s:.1f} s"
        )
    else:
        print(f"{result.variant.name}: all {len(result.images)} images are up to date")
