"""`build.py graph`: looking at what is declared and built."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from cellblock import paths
from cellblock.cli.options import JsonOption, VariantOption

GRAPH_FORMATS = ("mermaid", "dot", "svg")


def graph(
    image_format: Annotated[
        str, typer.Option("--format", help="mermaid (Markdown), dot (graphviz) or svg (a picture).")
    ] = "mermaid",
    variant: VariantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the images, what each needs, and the sizes of those that were built."""
    from cellblock.build.record import read_record
    from cellblock.definition import load_images
    from cellblock.errors import UsageError
    from cellblock.inspect import graph_svg, graph_text
    from cellblock.inspect.image_graph import image_graph
    from cellblock.variants import choose_variant, load_variants

    if image_format not in GRAPH_FORMATS:
        raise UsageError(
            f"--format {image_format}: there is no such format",
            hint=f"use one of: {', '.join(GRAPH_FORMATS)}",
        )
    folder = paths.PROJECT / "images"
    images = load_images(folder)
    name = choose_variant(load_variants(folder / "variants.yaml"), variant).name
    records = {image: record for image in images if (record := read_record(image, name))}
    found = image_graph(name, images, records)
    if as_json:
        print(json.dumps(asdict(found)))
    elif image_format == "svg":
        print(graph_svg.svg(found), end="")
    else:
        print(graph_text.dot(found) if image_format == "dot" else graph_text.mermaid(found), end="")
