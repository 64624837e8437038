"""`build.py graph | report`: looking at what is declared and built."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
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


def report(
    variant: VariantOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page: where the bytes and the time of the images go, and what they share."""
    from datetime import datetime, timezone

    from cellblock.build.record import image_store, read_record
    from cellblock.definition import load_images
    from cellblock.inspect import report as reports
    from cellblock.inspect.image_graph import image_graph
    from cellblock.inspect.report_page import page
    from cellblock.lock.file import lock_path, read_lock
    from cellblock.variants import choose_variant, load_variants

    folder = paths.PROJECT / "images"
    images = load_images(folder)
    chosen = choose_variant(load_variants(folder / "variants.yaml"), variant)
    graph = image_graph(chosen.name, images, {})
    names = [node.name for node in graph.nodes]
    records = {name: record for name in names if (record := read_record(name, chosen.name))}
    locked = lock_path(paths.PROJECT / "locks", chosen)
    lock = read_lock(locked) if locked.exists() else None
    made = reports.report(
        chosen.name,
        chosen.summary,
        records,
        image_store(),
        image_graph(chosen.name, images, records),
        datetime.now(timezone.utc),
        datetime.fromisoformat(lock.date.replace("Z", "+00:00")) if lock else None,
    )
    output.write_text(page(made), encoding="utf-8")
    if as_json:
        print(json.dumps({"page": str(output), **reports.figures(made)}))
    else:
        print(f"{output}: open it in a browser")
