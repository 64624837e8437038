# SPDX-License-Identifier: Apache-2.0
"""`build.py verify`: builds images again and compares every byte."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from cellblock.cli.json_output import print_json
from cellblock.cli.options import (
    JsonOption,
    LogOption,
    MirrorOption,
    SitesOption,
    VariantOption,
    image_names,
)


def verify(
    images: Annotated[
        list[str] | None,
        typer.Argument(
            help="Images to build again (default: what a cluster runs).", autocompletion=image_names
        ),
    ] = None,
    variant: VariantOption = None,
    mirror: MirrorOption = None,
    locked: Annotated[bool, typer.Option("--locked", help="As `build --locked` builds.")] = False,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Build images a second time, from nothing, and compare them with what is there, to the byte."""
    from cellblock.build.request import BuildRequest
    from cellblock.cli.images.inspect_text import InspectView
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.inspect.verify import verify_images

    events = Events()
    request = BuildRequest(
        tuple(images or ()),
        variant,
        tuple(mirror or ()),
        locked=locked,
        target="verify",
        sites=tuple(sites or ()),
    )
    with make_view(log, events):
        found = verify_images(request, events)
    same = all(each.digest == each.again for each in found.values())
    if as_json:
        print_json({"same": same, "images": {name: asdict(each) for name, each in found.items()}})
    else:
        for name, each in found.items():
            if each.digest == each.again:
                print(f"{name}: built again with the same digest, {each.digest}")
            else:
                print(f"{name}: {each.digest} became {each.again}:")
                InspectView().differences(list(each.differences))
    if not same:
        raise typer.Exit(1)
