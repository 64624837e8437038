# SPDX-License-Identifier: Apache-2.0
"""`build.py render`: prints the cluster file, its schema, or the images as a Containerfile for other tools.

render_kubernetes.py and render_metrics.py have the other commands of `render`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cellblock.cli.options import LogOption, MirrorOption, SitesOption, VariantOption, image_names
from cellblock.cli.render_kubernetes import kubernetes
from cellblock.cli.render_metrics import dashboards, rules

app = typer.Typer(help="Write images and volumes in the words of other tools.", no_args_is_help=True)
app.command()(kubernetes)
app.command()(rules)
app.command()(dashboards)


@app.command()
def cluster() -> None:
    """Print the cluster file that `up` uses when it is given none, to start one's own from."""
    from cellblock.cluster.definition.cluster_file import default_file

    print(default_file().read_text(encoding="utf-8"), end="")


@app.command()
def schema(
    of: Annotated[str, typer.Argument(help="What to print the schema of: cluster.", metavar="cluster")],
) -> None:
    """Print a JSON schema (2020-12), by which an editor completes and checks a file."""
    from cellblock.cli.json_output import print_json
    from cellblock.cluster.definition.cluster_file import ClusterFile
    from cellblock.errors import UsageError

    if of != "cluster":
        raise UsageError(f"there is no schema of '{of}'", hint="use one of: cluster")
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **ClusterFile.model_json_schema()})


@app.command()
def containerfile(
    images: Annotated[
        list[str] | None,
        typer.Argument(help="Images to render (default: what a cluster runs).", autocompletion=image_names),
    ] = None,
    variant: VariantOption = None,
    mirror: MirrorOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Folder to write it to, with all that the build copies."),
    ] = None,
    sites: SitesOption = None,
    log: LogOption = "auto",
) -> None:
    """Print a Containerfile of images and what they need, which any builder accepts."""
    from cellblock.build.containerfile import RenderRequest, rendered
    from cellblock.cli.views import make_view
    from cellblock.engine.stages import NAME
    from cellblock.events import Events

    request = RenderRequest(tuple(images or ()), variant, tuple(mirror or ()), sites=tuple(sites or ()))
    with rendered(request) as file:
        if output is None:
            print(file.text, end="")
            return
        events = Events()
        with make_view(log, events):
            file.write(output, events)
        print(f"{output / NAME}: stages {', '.join(stage.name for stage in file.stages)}")
