# SPDX-License-Identifier: Apache-2.0
"""`build.py diff | graph | report | plan | why`: shows what is declared, built, or would be built."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cellblock import paths
from cellblock.cli.json_output import print_json
from cellblock.cli.options import (
    JsonOption,
    LogOption,
    MirrorOption,
    SitesOption,
    VariantOption,
    image_names,
    variant_names,
)

GRAPH_FORMATS = ("mermaid", "dot", "svg")

LockedOption = Annotated[
    bool, typer.Option("--locked", help="Compare with what `build --locked` would build.")
]

_IMAGE_HELP = "An image (NAME, NAME:VARIANT, reference, digest, oci:DIR[:REFERENCE]) or a variant."


def image_or_variant_names() -> list[str]:
    """For the shell to complete."""
    return [*image_names(), *variant_names()]


def graph(
    image_format: Annotated[
        str, typer.Option("--format", help="mermaid (Markdown), dot (graphviz) or svg (a picture).")
    ] = "mermaid",
    variant: VariantOption = None,
    mirror: MirrorOption = None,
    locked: LockedOption = False,
    sites: SitesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the images, what each needs, and the sizes of those that were built."""
    from cellblock.build.outdated_images import stale_images
    from cellblock.build.request import BuildRequest
    from cellblock.cli.views import make_view
    from cellblock.errors import UsageError
    from cellblock.events import Events
    from cellblock.inspect import graph_svg, graph_text
    from cellblock.inspect.built_images import built_records
    from cellblock.inspect.image_graph import image_graph
    from cellblock.project import Project
    from cellblock.store.image_store import image_store

    if image_format not in GRAPH_FORMATS:
        raise UsageError(
            f"--format {image_format}: there is no such format",
            hint=f"use one of: {', '.join(GRAPH_FORMATS)}",
        )
    project = Project(sites=tuple(sites or ()))
    images, name = project.images, project.variant(variant).name
    records = built_records(images, name, image_store())
    request = BuildRequest((), name, tuple(mirror or ()), locked=locked, sites=tuple(sites or ()))
    with make_view("auto", events := Events()):
        found = image_graph(name, images, records, stale_images(request, records, events))
    if as_json:
        print_json(asdict(found))
    elif image_format == "svg":
        print(graph_svg.svg(found), end="")
    else:
        print(graph_text.dot(found) if image_format == "dot" else graph_text.mermaid(found), end="")


def report(
    variant: VariantOption = None,
    mirror: MirrorOption = None,
    locked: LockedOption = False,
    sites: SitesOption = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    as_json: JsonOption = False,
) -> None:
    """Write one HTML page: where the bytes and the time of the images go, and what they share."""
    from datetime import datetime, timezone

    from cellblock.build.outdated_images import stale_images
    from cellblock.build.request import BuildRequest
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.inspect import report as reports
    from cellblock.inspect.built_images import built_records
    from cellblock.inspect.image_graph import image_graph
    from cellblock.inspect.report_page import page
    from cellblock.project import Project
    from cellblock.store.image_store import image_store

    project = Project(sites=tuple(sites or ()))
    images, chosen = project.images, project.variant(variant)
    records = built_records([image.name for image in project.all_in_order()], chosen.name, image_store())
    request = BuildRequest((), chosen.name, tuple(mirror or ()), locked=locked, sites=tuple(sites or ()))
    with make_view("auto", events := Events()):
        stale = stale_images(request, records, events)
    made = reports.report(
        chosen.name,
        chosen.summary,
        records,
        image_store(),
        image_graph(chosen.name, images, records, stale),
        datetime.now(timezone.utc),
    )
    output.write_text(page(made), encoding="utf-8")
    if as_json:
        print_json({"page": str(output), **reports.figures(made)})
    else:
        print(f"{output}: open it in a browser")


def diff(
    old: Annotated[str, typer.Argument(help=_IMAGE_HELP, autocompletion=image_or_variant_names)],
    new: Annotated[
        str, typer.Argument(help="The same, or another variant.", autocompletion=image_or_variant_names)
    ],
    variant: VariantOption = None,
    files: Annotated[
        bool, typer.Option("--files", help="Name the files of packages that changed, too.")
    ] = False,
    sites: SitesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how two images, or all images of two variants, differ. Exits like diff(1)."""
    from cellblock.cli.images.inspect_text import InspectView
    from cellblock.errors import CellblockError, UsageError
    from cellblock.inspect.diff import Differ
    from cellblock.inspect.diff_json import diff_json
    from cellblock.inspect.image_names import ImageNames
    from cellblock.project import Project
    from cellblock.store.image_store import image_store

    project = Project(sites=tuple(sites or ()))
    chosen = project.variant(variant).name
    names = ImageNames(image_store(), project.images, project.variants, chosen)
    try:
        if names.is_variant(old) != names.is_variant(new):
            raise UsageError(
                f"{old} and {new}: one is a variant, the other is not",
                hint="compare two images, or two variants",
            )
        if names.is_variant(old):
            before, after = names.variant(old), names.variant(new)
            pairs = [(before[name], after[name]) for name in before if name in after]
            only = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
        else:
            pairs, only = [(names.image(old), names.image(new))], ([], [])
        differ = Differ()
        found = [differ.diff(*pair) for pair in pairs]
    except CellblockError as error:
        error.exit_status = 2  # of diff(1): 1 means that they differ
        raise
    equal = all(each.is_equal for each in found) and not any(only)
    if as_json:
        texts = [diff_json(each) for each in found]
        print_json({"equal": equal, "images": texts, "only_old": only[0], "only_new": only[1]})
    else:
        view = InspectView()
        for each in found:
            view.diff(each, all_files=files)
        for name, images in ((old, only[0]), (new, only[1])):
            if images:
                view.line(f"only in {name}: {', '.join(images)}", "bold")
    raise typer.Exit(0 if equal else 1)


def plan(
    variant: VariantOption = None,
    mirror: MirrorOption = None,
    locked: Annotated[
        bool, typer.Option("--locked", help="Plan from the lock, as `build --locked` would.")
    ] = False,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show the layers that a build would make, their sizes, who shares them, and what a node pulls."""
    from cellblock.build.prepare import prepare
    from cellblock.build.request import BuildRequest
    from cellblock.cli.images.inspect_text import InspectView
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.inspect.from_build import variant_plan
    from cellblock.store.image_store import image_store
    from cellblock.store.layer_records import find_layer

    events, store = Events(), image_store()
    with make_view(log, events):
        prepared = prepare(
            BuildRequest((), variant, tuple(mirror or ()), locked=locked, sites=tuple(sites or ())), events
        )
    found = variant_plan(
        prepared.variant.name,
        prepared.plans,
        lambda node: find_layer(paths.cache() / "layers", store, node.id, node.title, node.kind),
    )
    if as_json:
        print_json({**asdict(found), "node_bytes": found.pull(*found.node)[0]})
    else:
        InspectView().plan(found)


def why(
    image: Annotated[str, typer.Argument(help="The image.", autocompletion=image_names)],
    variant: VariantOption = None,
    mirror: MirrorOption = None,
    locked: Annotated[bool, typer.Option("--locked", help="As `build --locked` would build it.")] = False,
    sites: SitesOption = None,
    log: LogOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Name the inputs that changed since an image was built, and so why it would be built again."""
    from cellblock.build.prepare import prepare
    from cellblock.build.request import BuildRequest
    from cellblock.cli.images.inspect_text import InspectView
    from cellblock.cli.views import make_view
    from cellblock.events import Events
    from cellblock.inspect.from_build import why_built
    from cellblock.store.record import read_record

    events = Events()
    with make_view(log, events):
        prepared = prepare(
            BuildRequest((image,), variant, tuple(mirror or ()), locked=locked, sites=tuple(sites or ())),
            events,
        )
    planned = prepared.plans[image]
    changes = why_built(planned, read_record(image, prepared.variant.name))
    if as_json:
        causes = None if changes is None else [asdict(change) for change in changes]
        print_json({"image": image, "variant": prepared.variant.name, "changes": causes})
    elif changes is None:
        print(f"{image} of {prepared.variant.name} was never built in this checkout")
    else:
        InspectView().why(image, changes)
